#include "official/resnet/resnet_run.h"

#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/resnet/cifar10/dataset.h"
#include "official/resnet/imagenet/class_names.h"
#include "official/resnet/imagenet/dataset.h"
#include "official/resnet/resnet_export.h"
#include "official/resnet/resnet_predict.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/data/fingerprint.h"
#include "utils/data/records/bad_records.h"
#include "utils/data/records/tf_record_index.h"
#include "utils/files/files.h"
#include "utils/logs/hook.h"
#include "utils/logs/log.h"
#include "utils/misc/run_files.h"
#include "utils/run/batch_size.h"
#include "utils/run/cluster.h"
#include "utils/run/predict_lines.h"
#include "utils/run/rehearsal.h"
#include "utils/run/session.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/rounds.h"
#include "utils/train/run_facts.h"
#include "utils/train/run_state.h"

namespace official::resnet {
namespace {

data::ElementSpec SpecOf(DatasetName dataset) {
  return dataset == DatasetName::kCifar10 ? Cifar10Spec() : ImagenetSpec();
}

// The names of the classes and the file that they are from.
struct NamedClasses {
  ClassNames names;
  std::string file;
};

// Those of `label_file` or, if that is empty, of the first directory that has some; else those of the data set.
absl::StatusOr<NamedClasses> FindClasses(DatasetName dataset, const std::string& label_file,
                                         const std::vector<std::string>& directories) {
  NamedClasses classes;
  if (!label_file.empty()) {
    classes.file = absl::StrCat("--label_file=", label_file);
    ASSIGN_OR_RETURN(classes.names, ReadClassNames(label_file));
    return classes;
  }
  if (dataset == DatasetName::kCifar10) return NamedClasses{Cifar10ClassNames(), "CIFAR-10"};
  for (const std::string& directory : directories) {
    ASSIGN_OR_RETURN(classes.names, FindClassNames(directory));
    classes.file = files::JoinPath(directory, misc::kClassNamesFile);
    if (!classes.names.empty()) break;
  }
  return classes;
}

struct Sets {
  // Augmented under the run's seed, which is known only when its checkpoint is read. Null where it is not read.
  std::function<data::DatasetPtr(uint64_t seed)> train;
  data::DatasetPtr test;
  int64_t num_train_examples = 0;  // those of the published set where the own is not read
  std::string fingerprint;         // of the training set
  std::string test_fingerprint;
};

std::string FingerprintOf(const Cifar10Split& split) {
  data::Fingerprint fingerprint;
  fingerprint.AddContent(split.labels.raw_data(), split.labels.num_bytes());
  fingerprint.AddContent(split.images.raw_data(), split.images.num_bytes());
  return fingerprint.ToString(split.labels.num_elements());
}

std::string FingerprintOf(const ImagenetRecords& records) {
  data::Fingerprint fingerprint;
  records->AddTo(fingerprint);
  return fingerprint.ToString(records->num_records());
}

absl::StatusOr<Sets> LoadCifar10Sets(const ResnetConfig& config, bool reads_train) {
  Sets sets;
  sets.num_train_examples = InfoOf(DatasetName::kCifar10).num_train_examples;
  if (reads_train) {
    ASSIGN_OR_RETURN(const Cifar10Split train, LoadCifar10(config.base.data_dir, Cifar10Part::kTrain));
    sets.num_train_examples = train.labels.num_elements();
    sets.fingerprint = FingerprintOf(train);
    sets.train = [train, augment = config.base.augment](uint64_t seed) { return Cifar10Dataset(train, augment, seed); };
  }
  ASSIGN_OR_RETURN(const Cifar10Split test, LoadCifar10(config.base.data_dir, Cifar10Part::kTest));
  sets.test = Cifar10Dataset(test, /*augment=*/false, /*seed=*/0);
  sets.test_fingerprint = FingerprintOf(test);
  return sets;
}

// What is found out about the files is kept in `model_dir`, if there is one.
absl::StatusOr<Sets> LoadImagenetSets(const ResnetConfig& config, const std::string& model_dir, int num_classes,
                                      bool reads_train, bool evaluates, const BadRecordsPtr& bad) {
  const std::string& data_dir = config.base.data_dir;
  const ImagenetOptions options = {.fast_jpeg = config.fast_jpeg, .num_classes = num_classes, .bad = bad};
  const auto dataset = [options](const ImagenetRecords& records, bool augment, uint64_t seed) {
    ImagenetOptions of_set = options;
    of_set.augment = augment;
    of_set.seed = seed;
    return ImagenetDataset(records, of_set);
  };
  Sets sets;
  sets.num_train_examples = InfoOf(DatasetName::kImagenet).num_train_examples;
  if (reads_train) {
    ASSIGN_OR_RETURN(const ImagenetRecords train, OpenImagenet(data_dir, ImagenetPart::kTrain, model_dir, bad));
    sets.num_train_examples = train->num_records();
    sets.fingerprint = FingerprintOf(train);
    sets.train = [=, augment = config.base.augment](uint64_t seed) { return dataset(train, augment, seed); };
  }
  ASSIGN_OR_RETURN(const ImagenetRecords test, OpenImagenet(data_dir, ImagenetPart::kValidation, model_dir, bad));
  sets.test = dataset(test, /*augment=*/false, /*seed=*/0);
  sets.test_fingerprint = FingerprintOf(test);
  if (config.skip_bad_records > 0 && evaluates) {
    ASSIGN_OR_RETURN(sets.test, GoodRecords(test, options, config.performance.num_parallel_calls));
  }
  return sets;
}

// The network for these classes: as many as the flag says, as have names, or as the data set has.
absl::StatusOr<ModelConfig> ModelOf(ModelConfig model, const NamedClasses& classes) {
  if (classes.names.empty()) return model;
  const int num_names = static_cast<int>(classes.names.size());
  if (model.num_classes == 0) model.num_classes = num_names;
  if (NumClasses(model) == num_names) return model;
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s names %d classes%s, but the network has %d (--num_classes)", classes.file, num_names,
      model.dataset == DatasetName::kImagenet ? " (the first is the background)" : "", NumClasses(model)));
}

std::vector<std::string> EvaluationMetrics(const ModelConfig& model) {
  if (NumClasses(model) > 10) return {"accuracy", "accuracy_top_5", "loss"};
  return {"accuracy", "loss"};
}

// Returns the directory in which an earlier run or the user may have left names of classes: --model_dir. Empty where
// --clean has yet to empty it, which neither a rehearsal nor an evaluator does, and for workers other than the chief,
// which may not have it.
std::string DirectoryOfNames(const ResnetConfig& config, const run::Session* session) {
  if (session != nullptr && session->is_chief()) return config.train.model_dir;
  if (config.base.clean) return "";
  return session == nullptr ? config.train.model_dir : session->evaluation_dir();
}

// Returns true if there is a training to continue or to evaluate in a directory.
absl::StatusOr<bool> HasCheckpoint(const std::string& model_dir) {
  if (!files::Exists(model_dir)) return false;
  RETURN_IF_ERROR(train::CheckModelDir(model_dir));
  ASSIGN_OR_RETURN(const std::vector<std::string> checkpoints, train::ListCheckpoints(model_dir));
  return !checkpoints.empty();
}

// Returns true if names of classes in a directory are those of a run that ended before its first checkpoint, which bind
// no other. Those of a training there do, and those that a user has put there.
absl::StatusOr<bool> NamesAreStale(const std::string& model_dir) {
  ASSIGN_OR_RETURN(const bool is_trained, HasCheckpoint(model_dir));
  return !is_trained && files::Exists(files::JoinPath(model_dir, misc::kFlagsFile));
}

// The names of the classes of a run that trains or evaluates. `model_dir` is that of DirectoryOfNames: the names there
// must be the same, unless they are stale.
absl::StatusOr<NamedClasses> ClassesOfRun(const ResnetConfig& config, const std::string& model_dir) {
  if (config.model.dataset == DatasetName::kCifar10 || config.performance.use_synthetic_data) {
    return FindClasses(config.model.dataset, config.label_file, {});
  }
  if (model_dir.empty()) return FindClasses(config.model.dataset, config.label_file, {config.base.data_dir});
  ASSIGN_OR_RETURN(const bool stale, NamesAreStale(model_dir));
  std::vector<std::string> directories = {config.base.data_dir};
  if (!stale) directories.push_back(model_dir);
  ASSIGN_OR_RETURN(NamedClasses classes, FindClasses(config.model.dataset, config.label_file, directories));
  if (stale && !classes.names.empty()) return classes;
  ASSIGN_OR_RETURN(const ClassNames kept, FindClassNames(model_dir));
  if (kept.empty()) return classes;
  if (stale) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data have no names of classes, and ", files::JoinPath(model_dir, misc::kClassNamesFile),
                     " is of a run that ended before its first checkpoint, or yours; remove it, or give it as "
                     "--label_file if it names the classes"));
  }
  const absl::Status same =
      CheckSameClasses(kept, files::JoinPath(model_dir, misc::kClassNamesFile), classes.names, classes.file);
  if (same.ok()) return classes;
  ASSIGN_OR_RETURN(const bool is_trained, HasCheckpoint(model_dir));
  const std::string advice =
      is_trained
          ? absl::StrCat("train other classes in another --model_dir: --fine_tune=", model_dir,
                         " starts from the variables that fit")
          : absl::StrCat("nothing is trained in ", model_dir, " yet: correct or remove its ", misc::kClassNamesFile);
  return absl::InvalidArgumentError(absl::StrCat(same.message(), "; ", advice));
}

// Leaves the names in --model_dir for --predict, which needs no data, when a training begins: before flags.txt and the
// first checkpoint, and after all that may refuse the run. Stale names are replaced.
class ClassNamesHook : public logs::Hook {
 public:
  ClassNamesHook(const ResnetConfig& config, ClassNames names)
      : model_dir_(config.train.model_dir),
        replaces_(!config.performance.use_synthetic_data),
        names_(std::move(names)) {}

  absl::Status Begin(const logs::TrainStart&) override {
    const absl::StatusOr<ClassNames> kept = FindClassNames(model_dir_);
    if (kept.ok() && *kept == names_) return absl::OkStatus();
    const std::string file = files::JoinPath(model_dir_, misc::kClassNamesFile);
    if (!files::Exists(file)) return WriteClassNames(model_dir_, names_);
    ASSIGN_OR_RETURN(const bool stale, NamesAreStale(model_dir_));
    if (!stale || !replaces_) return absl::OkStatus();
    LOG(WARNING) << file << " is of a run that ended before its first checkpoint: it is replaced";
    return WriteClassNames(model_dir_, names_);
  }

 private:
  const std::string model_dir_;
  const bool replaces_;  // false: the data, which are made up, have no classes
  const ClassNames names_;
};

// Nothing with synthetic data.
absl::StatusOr<Sets> LoadSets(const ResnetConfig& config, const std::string& model_dir, const ModelConfig& model,
                              bool reads_train, bool evaluates, const BadRecordsPtr& bad) {
  if (config.performance.use_synthetic_data) return Sets();
  if (config.model.dataset == DatasetName::kCifar10) return LoadCifar10Sets(config, reads_train);
  return LoadImagenetSets(config, model_dir, NumClasses(model), reads_train, evaluates, bad);
}

// Warns of a training that continues with another batch size, in whose steps the schedule then counts.
train::RunFact BatchSizeFact(int64_t batch_size) {
  return {
      .name = "batch_size", .value = absl::StrCat(batch_size), .difference = [batch_size](absl::string_view before) {
        return absl::StrCat("--batch_size=", batch_size, ", but this run has trained with ", before,
                            ": the learning rate schedule counts all steps, also those already made, as steps of ",
                            batch_size, " images; to keep to the schedule, give --batch_size=", before);
      }};
}

run::Input InputOf(const ResnetConfig& config, const Sets& sets, int64_t batch_size) {
  const DatasetInfo& info = InfoOf(config.model.dataset);
  if (config.performance.use_synthetic_data) {
    return run::SyntheticInput({.stands_for = std::string(info.title),
                                .spec = SpecOf(config.model.dataset),
                                .num_train_examples = info.num_train_examples,
                                .num_eval_examples = info.num_eval_examples,
                                .across_epochs = true},
                               batch_size);
  }
  const int num_threads = config.performance.num_parallel_calls;
  run::Input input = {.dataset = std::string(info.title),
                      .fingerprint = sets.fingerprint,
                      .eval_fingerprint = sets.test_fingerprint,
                      .spec = SpecOf(config.model.dataset),
                      .num_train_examples = sets.num_train_examples,
                      .across_epochs = true,
                      .eval = [=, test = sets.test](const data::HeldRows& rows) {
                        return run::ReadAhead(test,
                                              {.batch_size = batch_size, .num_threads = num_threads, .rows = rows});
                      }};
  if (sets.train == nullptr) return input;
  const bool has_steps =
      config.model.schedule.schedule != LrSchedule::kConstant || config.model.schedule.warmup_epochs > 0;
  if (has_steps && !config.base.eval_only) input.facts.push_back(BatchSizeFact(batch_size));
  input.train = [=, train = sets.train, shuffle = config.base.shuffle](const run::ReadOptions& read) {
    data::DatasetPtr examples = train(read.seed);
    if (shuffle) examples = data::Shuffle(std::move(examples), read.seed);
    return run::ReadAhead(std::move(examples), {.batch_size = batch_size,
                                                .start = read.start,
                                                .end_epoch = read.end_epoch,
                                                .across_epochs = true,
                                                .num_threads = num_threads,
                                                .rows = read.rows});
  };
  return input;
}

// The network, with the learning rate of a batch size, whose epochs are those of the run.
ModelConfig WithSchedule(ModelConfig model, const ResnetConfig& config, const run::Input& input, int batch_size,
                         int batches_per_step) {
  const run::Input data = run::DataOf(config, input, batch_size);
  model.schedule.batch_size = batch_size;
  model.schedule.batches_per_step = batches_per_step;
  model.schedule.num_train_examples = data.num_train_examples;
  model.schedule.total_steps = train::TotalSteps(
      {.train_epochs = config.base.train_epochs, .epochs_between_evals = config.base.epochs_between_evals},
      train::RunState(),
      {.num_examples = data.num_train_examples,
       .batch_size = int64_t{batch_size} * batches_per_step,
       .across_epochs = data.across_epochs});
  return model;
}

// The classes are those of the training; --label_file only names them.
absl::Status Predict(const ResnetConfig& config, std::ostream& results) {
  const DatasetName dataset = config.model.dataset;
  ASSIGN_OR_RETURN(const ModelConfig model, ModelOfTraining(config.model, config.train.model_dir));
  ASSIGN_OR_RETURN(NamedClasses classes, FindClasses(dataset, /*label_file=*/"", {config.train.model_dir}));
  if (!config.label_file.empty()) {
    ASSIGN_OR_RETURN(classes, FindClasses(dataset, config.label_file, {}));
    RETURN_IF_ERROR(ModelOf(model, classes).status());
  }
  ASSIGN_OR_RETURN(const auto estimator, run::OpenTrained(config, ResnetModel(model)));
  const PredictOptions options = {.dataset = model.dataset,
                                  .top_k = config.top_k,
                                  .class_names = std::move(classes.names),
                                  .json = config.base.output == "json"};
  if (run::IsStandardInput(config.predict)) return PredictLines(*estimator, STDIN_FILENO, options, results);
  return PredictFiles(*estimator, config.predict, options, results);
}

}  // namespace

absl::StatusOr<ModelConfig> ModelOfTraining(const ModelConfig& model, const std::string& model_dir) {
  ASSIGN_OR_RETURN(const NamedClasses classes, FindClasses(model.dataset, /*label_file=*/"", {model_dir}));
  ASSIGN_OR_RETURN(ModelConfig trained, ModelOf(model, classes));
  trained.num_classes = NumClasses(trained);
  return trained;
}

absl::Status RunResnet(const ResnetConfig& given, std::ostream& results) {
  ResnetConfig config = given;
  if (!config.predict.empty()) return Predict(config, results);
  std::unique_ptr<run::Session> session;  // none for a rehearsal
  if (!run::Rehearses(config)) {
    ASSIGN_OR_RETURN(session, run::Session::Open(config, results));
  }
  const auto bad = std::make_shared<data::BadRecords>(config.skip_bad_records);
  const auto report_bad_records = absl::MakeCleanup([&] { bad->Report(); });
  ASSIGN_OR_RETURN(const NamedClasses classes, ClassesOfRun(config, DirectoryOfNames(config, session.get())));
  ASSIGN_OR_RETURN(const ModelConfig model, ModelOf(config.model, classes));
  const bool reads_train = run::ReadsTrainingData(config, session.get());
  const bool evaluates = session == nullptr || session->evaluates();
  const std::string written_dir = session == nullptr ? "" : session->model_dir();
  ASSIGN_OR_RETURN(const Sets sets, LoadSets(config, written_dir, model, reads_train, evaluates, bad));
  ASSIGN_OR_RETURN(const int batches_per_step, run::BatchesPerStep(config));
  const auto training = [&](int batch_size) {
    run::Input input = InputOf(config, sets, batch_size);
    input.network_size = absl::StrCat(NumClasses(model), " classes");
    train::Model network = ResnetModel(WithSchedule(model, config, input, batch_size, batches_per_step));
    return run::Training{std::move(network), std::move(input)};
  };
  RETURN_IF_ERROR(run::ChooseBatchSize({.training = training}, config, session.get()));
  auto [network, input] = training(config.base.batch_size);
  const run::SessionOptions options = {
      .name = "resnet",
      .run_parameters = {{"resnet_size", absl::StrCat(config.model.size)},
                         {"resnet_version", absl::StrCat(config.model.version)}},
      .fine_tune = config.fine_tune,
      .metrics = EvaluationMetrics(model),
      .evaluation_flags = {"label_smoothing", "weight_decay"},
      .mismatch_hint = ", or start a new run there from the variables that fit, with --fine_tune",
      .serving_graph = [dataset = model.dataset](const train::Model& network) {
        return ResnetServingGraph(network, dataset);
      }};
  network.eval_samples = ImageSamples(model.dataset, classes.names);
  if (session == nullptr) return run::Rehearse(config, std::move(network), std::move(input), options, results);
  if (session->is_chief() && model.dataset != DatasetName::kCifar10) {
    session->AddHook(std::make_unique<ClassNamesHook>(config, classes.names));
  }
  RETURN_IF_ERROR(session->Begin(std::move(network), std::move(input), options).status());
  RETURN_IF_ERROR(session->TrainAndEvaluate("accuracy"));
  std::map<std::string, std::string> extra_files;
  if (!classes.names.empty()) extra_files[std::string(misc::kClassNamesFile)] = ClassNamesText(classes.names);
  return session->Export(extra_files);
}

}  // namespace official::resnet
