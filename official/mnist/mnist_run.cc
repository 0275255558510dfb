#include "official/mnist/mnist_run.h"

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "official/mnist/dataset.h"
#include "official/mnist/mnist_export.h"
#include "official/mnist/mnist_predict.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/data/fingerprint.h"
#include "utils/logs/log.h"
#include "utils/run/batch_size.h"
#include "utils/run/predict_lines.h"
#include "utils/run/rehearsal.h"
#include "utils/run/session.h"

namespace official::mnist {
namespace {

using compute::DType;

constexpr int64_t kTrainExamples = 60000, kTestExamples = 10000;  // of MNIST

data::ElementSpec MnistSpec() {
  return {.features = {{"", {DType::kFloat32, {kImageSize * kImageSize}}}}, .labels = {{"", {DType::kInt32, {}}}}};
}

std::string FingerprintOf(const MnistSplit& split) {
  data::Fingerprint fingerprint;
  fingerprint.AddContent(split.labels.raw_data(), split.labels.num_bytes());
  fingerprint.AddContent(split.images.raw_data(), split.images.num_bytes());
  return fingerprint.ToString(split.labels.num_elements());
}

// Real or drawn digits; none with synthetic data.
absl::StatusOr<MnistData> LoadData(const MnistConfig& config, bool reads_train) {
  if (config.performance.use_synthetic_data) return MnistData();
  ASSIGN_OR_RETURN(MnistData data, LoadMnist({.data_dir = config.base.data_dir,
                                              .data_dir_given = config.base.data_dir_given,
                                              .reads_train = reads_train}));
  if (!data.note.empty()) {
    LOG(WARNING) << data.note;
  }
  return data;
}

run::Input InputOf(const MnistConfig& config, const MnistData& data, int64_t batch_size) {
  if (config.performance.use_synthetic_data) {
    return run::SyntheticInput({.stands_for = "MNIST",
                                .spec = MnistSpec(),
                                .num_train_examples = kTrainExamples,
                                .num_eval_examples = kTestExamples},
                               batch_size);
  }
  run::Input input = {.dataset = data.drawn ? "drawn digits" : "MNIST",
                      .eval_fingerprint = FingerprintOf(data.test),
                      .spec = MnistSpec(),
                      .num_train_examples = kTrainExamples,  // if the own are not read
                      .eval = [=, test = MnistDataset(data.test)](const data::HeldRows& rows) {
                        return run::ReadAhead(test, {.batch_size = batch_size, .rows = rows});
                      }};
  if (!data.train) return input;
  const data::DatasetPtr train = MnistDataset(*data.train);
  input.fingerprint = FingerprintOf(*data.train);
  input.num_train_examples = train->num_examples();
  input.train = [=, shuffle = config.base.shuffle](const run::ReadOptions& read) {
    return run::ReadAhead(
        shuffle ? data::Shuffle(train, read.seed) : train,
        {.batch_size = batch_size, .start = read.start, .end_epoch = read.end_epoch, .rows = read.rows});
  };
  return input;
}

}  // namespace

absl::Status RunMnist(const MnistConfig& given, std::ostream& results) {
  MnistConfig config = given;
  if (!config.predict.empty()) {
    ASSIGN_OR_RETURN(const auto estimator, run::OpenTrained(config, MnistModel(config.model)));
    const bool json = config.base.output == "json";
    if (run::IsStandardInput(config.predict)) return PredictLines(*estimator, STDIN_FILENO, json, results);
    return PredictFiles(*estimator, config.predict, json, results);
  }
  const run::SessionOptions options = {
      .name = "mnist", .metrics = {"accuracy", "loss"}, .serving_graph = MnistServingGraph};
  std::unique_ptr<run::Session> session;  // none for a rehearsal
  if (!run::Rehearses(config)) {
    ASSIGN_OR_RETURN(session, run::Session::Open(config, results));
  }
  ASSIGN_OR_RETURN(const MnistData data, LoadData(config, run::ReadsTrainingData(config, session.get())));
  const auto training = [&](int batch_size) {
    return run::Training{MnistModel(config.model), InputOf(config, data, batch_size)};
  };
  RETURN_IF_ERROR(run::ChooseBatchSize({.training = training}, config, session.get()));
  auto [model, input] = training(config.base.batch_size);
  if (session == nullptr) return run::Rehearse(config, std::move(model), std::move(input), options, results);
  RETURN_IF_ERROR(session->Begin(std::move(model), std::move(input), options).status());
  RETURN_IF_ERROR(session->TrainAndEvaluate("accuracy"));
  return session->Export();
}

}  // namespace official::mnist
