#include "official/mnist/mnist_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "official/mnist/dataset.h"
#include "official/mnist/mnist_export.h"
#include "official/mnist/mnist_predict.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_backend.h"
#include "utils/data/batch.h"
#include "utils/data/synthetic.h"
#include "utils/distribute/strategy.h"
#include "utils/logs/benchmark_logger.h"
#include "utils/logs/hooks_helper.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/logs/output_style.h"
#include "utils/logs/progress.h"
#include "utils/misc/distribution_utils.h"
#include "utils/misc/gpu_count.h"
#include "utils/misc/model_helpers.h"
#include "utils/misc/stop_signals.h"
#include "utils/misc/version.h"
#include "utils/train/estimator.h"
#include "utils/train/run_lock.h"
#include "utils/train/train_hooks.h"

namespace official::mnist {
namespace {

using compute::DType;

constexpr int64_t kTrainExamples = 60000, kTestExamples = 10000;  // of the synthetic data, as of MNIST

data::ElementSpec MnistSpec() {
  return {.features = {{"", {DType::kFloat32, {kImageSize * kImageSize}}}}, .labels = {{"", {DType::kInt32, {}}}}};
}

// Where the examples come from: real or drawn digits, or one constant example.
struct Input {
  std::string name;               // of the data set, kept in the checkpoint
  std::optional<MnistData> data;  // nothing: synthetic
  int64_t num_train_examples = kTrainExamples;
};

absl::StatusOr<Input> LoadInput(const MnistConfig& config) {
  if (config.performance.use_synthetic_data) return Input{.name = "MNIST-synthetic", .data = std::nullopt};
  ASSIGN_OR_RETURN(MnistData data,
                   LoadMnist({.data_dir = config.base.data_dir, .data_dir_given = config.base.data_dir_given}));
  if (!data.note.empty()) {
    LOG(WARNING) << data.note;
  }
  const int64_t examples = data.train.labels.num_elements();
  return Input{.name = data.drawn ? "drawn digits" : "MNIST", .data = std::move(data), .num_train_examples = examples};
}

absl::StatusOr<data::BatchSourcePtr> Synthetic(const data::BatchOptions& options, int64_t num_examples) {
  return data::GenerateSyntheticData({.input = {.shapes = {{"", {kImageSize * kImageSize}}}, .value = 0.0},
                                      .label = {.shapes = {{"", {}}}, .value = int64_t{0}},
                                      .num_examples = num_examples},
                                     options);
}

// Batches of the training set from `start` to the end of epoch `end_epoch` - 1.
train::InputFn TrainInput(const MnistConfig& config, const Input& input, uint64_t seed, int64_t end_epoch) {
  return [&config, &input, seed, end_epoch](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    const data::BatchOptions options{
        .batch_size = config.base.batch_size, .start = start, .end_epoch = end_epoch, .num_threads = 1};
    if (!input.data) return Synthetic(options, input.num_train_examples);
    data::DatasetPtr dataset = MnistDataset(input.data->train);
    if (config.base.shuffle) dataset = data::Shuffle(std::move(dataset), seed);
    ASSIGN_OR_RETURN(data::BatchSourcePtr batches, data::Batches(std::move(dataset), options));
    return data::Prefetch(std::move(batches), /*depth=*/2);
  };
}

train::InputFn EvalInput(const MnistConfig& config, const Input& input) {
  return [&config, &input](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    const data::BatchOptions options{.batch_size = config.base.batch_size, .start = start, .num_threads = 1};
    if (!input.data) return Synthetic(options, kTestExamples);
    ASSIGN_OR_RETURN(data::BatchSourcePtr batches, data::Batches(MnistDataset(input.data->test), options));
    return data::Prefetch(std::move(batches), /*depth=*/2);
  };
}

logs::Json::Object AsJson(const train::EvalResults& results) {
  logs::Json::Object object;
  for (const auto& [name, value] : results) {
    if (name == "global_step") {
      object.emplace_back(name, static_cast<int64_t>(value));
    } else {
      object.emplace_back(name, value);
    }
  }
  return object;
}

void PrintEvaluation(const MnistConfig& config, const train::EvalResults& results, std::ostream& out) {
  const logs::Json json = AsJson(results);
  if (config.base.output == "json") {
    out << logs::DumpJson(json) << std::endl;
  } else {
    out << "\nEvaluation results:\n\t" << logs::PythonRepr(json) << "\n" << std::endl;
  }
}

double Result(const train::EvalResults& results, absl::string_view name) {
  const auto it = std::find_if(results.begin(), results.end(), [&](const auto& r) { return r.first == name; });
  OFFICIAL_CHECK(it != results.end()) << name;
  return it->second;
}

train::Interruption AskSignals() {
  if (misc::StopSignalReceived() != 0) return train::Interruption::kStop;
  return misc::TakeSaveRequest() ? train::Interruption::kSave : train::Interruption::kNone;
}

train::Resume ResumeFromFlag(const std::string& flag) {
  if (flag == "never") return train::Resume::kNever;
  return flag == "must" ? train::Resume::kMust : train::Resume::kAuto;
}

// The GPUs that this process sees, if the CUDA backend can use them. Where no driver is loaded nothing else is.
misc::VisibleGpus UsableGpus() {
  misc::VisibleGpus gpus = misc::CountVisibleGpus();
  if (gpus.count == 0) return gpus;
  const absl::Status status = compute::LoadCudaBackend();
  if (status.ok()) return gpus;
  LOG(WARNING) << gpus.count << " GPUs are there but cannot be used: " << status.message();
  return {.count = 0, .why_none = std::string(status.message())};
}

absl::StatusOr<std::unique_ptr<train::Estimator>> MakeEstimator(const MnistConfig& config,
                                                                absl::string_view device_kind, int num_replicas,
                                                                const std::string& dataset, bool write_model_dir) {
  ASSIGN_OR_RETURN(auto strategy,
                   distribute::Strategy::Create({.device_kind = std::string(device_kind),
                                                 .num_replicas = num_replicas,
                                                 .num_threads = config.performance.intra_op_parallelism_threads,
                                                 .all_reduce_alg = config.performance.all_reduce_alg}));
  return train::Estimator::Create(MnistModel(config.model),
                                  {.model_dir = config.base.model_dir,
                                   .dataset = dataset,
                                   .seed = config.base.seed,
                                   .dtype = config.performance.dtype,
                                   .save_checkpoints_steps = config.base.save_checkpoints_steps,
                                   .save_checkpoints_secs = config.base.save_checkpoints_secs,
                                   .keep_checkpoint_max = config.base.keep_checkpoint_max,
                                   .save_summary_steps = config.base.log_every_n_steps,
                                   .check_replicas_steps = config.performance.check_replicas_steps,
                                   .flags_text = config.flags_text,
                                   .write_model_dir = write_model_dir,
                                   .resume = ResumeFromFlag(config.base.resume),
                                   .interruption = AskSignals},
                                  std::move(strategy));
}

logs::RunInfo RunRecord(const MnistConfig& config, const Input& input) {
  return {.model_name = "mnist",
          .dataset_name = input.name,
          .test_id = config.benchmark.benchmark_test_id,
          .run_parameters = {{"batch_size", int64_t{config.base.batch_size}},
                             {"dtype", std::string(compute::DTypeName(config.performance.dtype))},
                             {"synthetic_data", config.performance.use_synthetic_data},
                             {"train_epochs", int64_t{config.base.train_epochs}}},
          .version = misc::kVersion};
}

bool IsTrained(const MnistConfig& config, const train::Estimator& estimator) {
  const std::optional<int64_t> max_steps = config.performance.max_train_steps;
  return estimator.position().epoch >= config.base.train_epochs || (max_steps && estimator.global_step() >= *max_steps);
}

// A run that was stopped between training and evaluation leaves the evaluation to the next.
bool EvaluationIsDue(const MnistConfig& config, const train::Estimator& estimator) {
  const data::Position position = estimator.position();
  if (position == data::Position{} || estimator.evaluated_step() == estimator.global_step()) return false;
  return IsTrained(config, estimator) ||
         (position.index == 0 && position.epoch % config.base.epochs_between_evals == 0);
}

absl::Status TrainAndEvaluate(const MnistConfig& config, const Input& input, train::Estimator& estimator,
                              logs::BaseBenchmarkLogger& logger, std::ostream& out) {
  const flags::BaseConfig& base = config.base;
  const std::optional<int64_t> max_steps = config.performance.max_train_steps;
  RETURN_IF_ERROR(logger.LogRunInfo(RunRecord(config, input)));

  ASSIGN_OR_RETURN(
      std::vector<std::unique_ptr<logs::Hook>> hooks,
      logs::GetTrainHooks(base.hooks, {.model_dir = base.model_dir, .batch_size = base.batch_size, .logger = &logger}));
  const int64_t steps_per_epoch = (input.num_train_examples + base.batch_size - 1) / base.batch_size;
  int64_t total_steps = estimator.global_step() + (base.train_epochs - estimator.position().epoch) * steps_per_epoch -
                        estimator.position().index / base.batch_size;
  if (max_steps) total_steps = std::min(total_steps, *max_steps);
  auto progress = std::make_unique<logs::Progress>(logs::ProgressOptions{.format = logs::CurrentLogFormat(),
                                                                         .total_steps = total_steps,
                                                                         .total_epochs = base.train_epochs,
                                                                         .log_every_n_steps = base.log_every_n_steps});
  const logs::Progress& throughput = *progress;
  hooks.push_back(std::move(progress));
  hooks.push_back(train::MakeLossMetricHook(&logger, base.log_every_n_steps));
  hooks.push_back(train::MakeFirstStepHook());

  // Evaluations are due after every epochs_between_evals epochs of the whole training, wherever a run began.
  while (!IsTrained(config, estimator) || EvaluationIsDue(config, estimator)) {
    if (!EvaluationIsDue(config, estimator)) {
      const int64_t between = base.epochs_between_evals;
      const int64_t end_epoch =
          std::min<int64_t>(base.train_epochs, (estimator.position().epoch / between + 1) * between);
      RETURN_IF_ERROR(estimator.Train(TrainInput(config, input, estimator.seed(), end_epoch), max_steps, hooks));
    }
    ASSIGN_OR_RETURN(const train::EvalResults results, estimator.Evaluate(EvalInput(config, input), max_steps));
    RETURN_IF_ERROR(logger.LogEvaluationResult(results, estimator.global_step()));
    PrintEvaluation(config, results, out);
    const double accuracy = Result(results, "accuracy");
    if (misc::PastStopThreshold(base.stop_threshold, accuracy)) {
      LOG(INFO) << "Stop threshold of " << *base.stop_threshold << " was passed with metric value " << accuracy;
      break;
    }
  }
  if (throughput.ExamplesPerSecond()) {
    RETURN_IF_ERROR(logger.LogMetric({.name = "examples_per_sec",
                                      .value = *throughput.ExamplesPerSecond(),
                                      .global_step = estimator.global_step()}));
  }
  LOG(INFO) << "trained to step " << estimator.global_step() << ": " << throughput.Summary();
  return absl::OkStatus();
}

}  // namespace

absl::Status RunMnist(const MnistConfig& config, std::ostream& results) {
  const flags::BaseConfig& base = config.base;
  // Several CPU devices are a wish for the CPU.
  const std::optional<int> wanted_gpus = config.performance.num_cpu_devices > 1 ? 0 : base.num_gpus;
  ASSIGN_OR_RETURN(const int num_gpus, misc::GetNumGpus(wanted_gpus, UsableGpus));
  RETURN_IF_ERROR(misc::CheckDtype(config.performance.dtype, num_gpus));
  const absl::string_view device_kind = num_gpus > 0 ? "cuda" : "cpu";
  const int num_replicas = num_gpus > 0 ? num_gpus : config.performance.num_cpu_devices;
  ASSIGN_OR_RETURN(const int replica_batch,
                   misc::PerDeviceBatchSize(base.batch_size, num_replicas, num_gpus > 0 ? "GPUs" : "CPU devices"));

  if (!config.predict.empty()) {
    ASSIGN_OR_RETURN(const auto estimator, MakeEstimator(config, device_kind, /*num_replicas=*/1, "",
                                                         /*write_model_dir=*/false));
    return PredictFiles(*estimator, config.predict, base.output == "json", results);
  }
  ASSIGN_OR_RETURN(const auto lock, train::RunLock::Acquire(base.model_dir));
  if (base.clean) {
    ASSIGN_OR_RETURN(const bool cleaned, misc::ApplyClean(base.model_dir, {base.data_dir}));
    if (cleaned) {
      LOG(INFO) << "--clean flag set. Removed existing model dir: " << base.model_dir;
    }
  }
  ASSIGN_OR_RETURN(const Input input, LoadInput(config));
  ASSIGN_OR_RETURN(const auto estimator,
                   MakeEstimator(config, device_kind, num_replicas, input.name, /*write_model_dir=*/true));
  RETURN_IF_ERROR(estimator->CheckBatchFits(MnistSpec(), base.batch_size));

  LOG(INFO) << "device " << estimator->strategy().Description() << ", strategy " << estimator->strategy().name()
            << ", precision " << compute::DTypeName(config.performance.dtype) << ", batch " << base.batch_size << " ("
            << replica_batch << " per replica), data " << input.name << ", " << estimator->origin();
  if (estimator->seed() != base.seed) {
    LOG(WARNING) << "--seed=" << base.seed << " is not used: this run was begun with seed " << estimator->seed();
  }
  const std::optional<int64_t> max_steps = config.performance.max_train_steps;
  if (IsTrained(config, *estimator) && !EvaluationIsDue(config, *estimator)) {
    LOG(INFO) << "nothing to do: " << base.model_dir << " is trained to step " << estimator->global_step() << ", "
              << estimator->position().epoch << " of --train_epochs=" << base.train_epochs
              << " epochs; to go on raise --train_epochs" << (max_steps ? " or --max_train_steps" : "")
              << ", to start afresh give --clean or another --model_dir";
  } else {
    ASSIGN_OR_RETURN(const auto logger,
                     logs::CreateBenchmarkLogger("BenchmarkFileLogger",
                                                 config.benchmark.benchmark_log_dir.value_or(base.model_dir)));
    // Until here there was nothing to save, and a signal has ended the process.
    const misc::StopSignals signals;
    RETURN_IF_ERROR(logs::RunWithBenchmarkLogger(
        *logger, [&] { return TrainAndEvaluate(config, input, *estimator, *logger, results); }));
    if (misc::StopSignalReceived() != 0) {
      return absl::CancelledError(absl::StrCat("stopped at step ", estimator->global_step(), ", which is saved"));
    }
  }
  if (base.export_dir) {
    ASSIGN_OR_RETURN(const std::string path, ExportSavedModel(*estimator, config.model, *base.export_dir));
    LOG(INFO) << "SavedModel written to: " << path;
  }
  return absl::OkStatus();
}

}  // namespace official::mnist
