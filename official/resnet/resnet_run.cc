#include "official/resnet/resnet_run.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "official/resnet/cifar10/dataset.h"
#include "official/resnet/imagenet/dataset.h"
#include "official/resnet/resnet_export.h"
#include "official/resnet/resnet_predict.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"

namespace official::resnet {
namespace {

data::ElementSpec SpecOf(DatasetName dataset) {
  return dataset == DatasetName::kCifar10 ? Cifar10Spec() : ImagenetSpec();
}

struct Sets {
  // Augmented under the run's seed, which is known only when its checkpoint is read.
  std::function<data::DatasetPtr(uint64_t seed)> train;
  data::DatasetPtr test;
  int64_t num_train_examples;
};

absl::StatusOr<Sets> LoadCifar10Sets(const ResnetConfig& config) {
  ASSIGN_OR_RETURN(const Cifar10Split train, LoadCifar10(config.base.data_dir, Cifar10Part::kTrain));
  ASSIGN_OR_RETURN(const Cifar10Split test, LoadCifar10(config.base.data_dir, Cifar10Part::kTest));
  return Sets{[train, augment = config.base.augment](uint64_t seed) { return Cifar10Dataset(train, augment, seed); },
              Cifar10Dataset(test, /*augment=*/false, /*seed=*/0), train.labels.num_elements()};
}

absl::StatusOr<Sets> LoadImagenetSets(const ResnetConfig& config) {
  const std::string &data_dir = config.base.data_dir, &model_dir = config.base.model_dir;
  ASSIGN_OR_RETURN(const ImagenetRecords train, OpenImagenet(data_dir, ImagenetPart::kTrain, model_dir));
  ASSIGN_OR_RETURN(const ImagenetRecords test, OpenImagenet(data_dir, ImagenetPart::kValidation, model_dir));
  const auto dataset = [fast_jpeg = config.fast_jpeg](const ImagenetRecords& records, bool augment, uint64_t seed) {
    return ImagenetDataset(records, {.augment = augment, .seed = seed, .fast_jpeg = fast_jpeg});
  };
  const data::DatasetPtr test_set = dataset(test, /*augment=*/false, /*seed=*/0);
  return Sets{[=, augment = config.base.augment](uint64_t seed) { return dataset(train, augment, seed); }, test_set,
              dataset(train, /*augment=*/false, /*seed=*/0)->num_examples()};
}

absl::StatusOr<run::Input> LoadInput(const ResnetConfig& config) {
  const DatasetInfo& info = InfoOf(config.model.dataset);
  if (config.performance.use_synthetic_data) {
    return run::SyntheticInput({.stands_for = std::string(info.title),
                                .spec = SpecOf(config.model.dataset),
                                .num_train_examples = info.num_train_examples,
                                .num_eval_examples = info.num_eval_examples,
                                .across_epochs = true},
                               config.base.batch_size);
  }
  ASSIGN_OR_RETURN(const Sets sets,
                   config.model.dataset == DatasetName::kCifar10 ? LoadCifar10Sets(config) : LoadImagenetSets(config));
  const int64_t batch_size = config.base.batch_size;
  const int num_threads = config.performance.num_parallel_calls;
  return run::Input{.dataset = std::string(info.title),
                    .spec = SpecOf(config.model.dataset),
                    .num_train_examples = sets.num_train_examples,
                    .across_epochs = true,
                    .train =
                        [=, train = sets.train, shuffle = config.base.shuffle](uint64_t seed, data::Position start,
                                                                               int64_t end_epoch) {
                          data::DatasetPtr examples = train(seed);
                          if (shuffle) examples = data::Shuffle(std::move(examples), seed);
                          return run::ReadAhead(std::move(examples), {.batch_size = batch_size,
                                                                      .start = start,
                                                                      .end_epoch = end_epoch,
                                                                      .across_epochs = true,
                                                                      .num_threads = num_threads});
                        },
                    .eval =
                        [=, test = sets.test](data::Position start) {
                          return run::ReadAhead(test,
                                                {.batch_size = batch_size, .start = start, .num_threads = num_threads});
                        }};
}

}  // namespace

absl::Status RunResnet(const ResnetConfig& config, std::ostream& results) {
  if (!config.predict.empty()) {
    ASSIGN_OR_RETURN(const auto estimator, run::OpenTrained(config, ResnetModel(config.model)));
    return PredictFiles(*estimator, config.predict,
                        {.dataset = config.model.dataset,
                         .top_k = config.top_k,
                         .label_file = config.label_file,
                         .json = config.base.output == "json"},
                        results);
  }
  const run::Task task{.name = "resnet",
                       .load = [&] { return LoadInput(config); },
                       .model =
                           [&](const run::Input& input) {
                             ModelConfig model = config.model;
                             model.schedule.batch_size = config.base.batch_size;
                             model.schedule.num_train_examples = input.num_train_examples;
                             return ResnetModel(model);
                           },
                       .run_parameters = {{"resnet_size", absl::StrCat(config.model.size)},
                                          {"resnet_version", absl::StrCat(config.model.version)}},
                       .fine_tune = config.fine_tune,
                       .mismatch_hint = ", or begin a new run there with what fits by --fine_tune",
                       .export_model =
                           [&](train::Estimator& estimator, const std::string& export_dir) {
                             return ExportSavedModel(estimator, config.model.dataset, export_dir);
                           }};
  return config.eval_only ? run::EvaluateOnly(config, task, results) : run::TrainAndEvaluate(config, task, results);
}

}  // namespace official::resnet
