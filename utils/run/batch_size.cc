#include "utils/run/batch_size.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/events.h"
#include "utils/logs/task_progress.h"
#include "utils/misc/available_memory.h"
#include "utils/misc/size_text.h"
#include "utils/run/batch_size_search.h"
#include "utils/run/cluster.h"
#include "utils/run/devices.h"
#include "utils/train/estimator.h"

namespace official::run {
namespace {

constexpr int64_t kFirstExamples = 8;        // for each device, in the size that is tried first
constexpr double kFreeShareOfDevice = 0.25;  // of what a training step needs, to be left free
constexpr double kTimedSeconds = 0.4;        // as many steps as take this long are timed
constexpr int64_t kMaxTimedSteps = 200;

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The next batches of another source, which it does not own; or one batch again and again.
class SomeBatches : public data::BatchSource {
 public:
  SomeBatches(data::BatchSource& source, const data::Batch& first, bool repeats)
      : source_(source), first_(first), repeats_(repeats) {}
  const data::ElementSpec& spec() const override { return source_.spec(); }
  absl::StatusOr<std::optional<data::Batch>> Next() override {
    if (repeats_) return first_;
    return source_.Next();
  }

 private:
  data::BatchSource& source_;
  const data::Batch& first_;
  const bool repeats_;
};

// One training with one batch size.
class Attempt {
 public:
  Attempt(const Config& config, const Devices& devices, int64_t free_bytes)
      : config_(config), devices_(devices), free_bytes_(free_bytes) {}

  absl::StatusOr<SizeTrial> Time(Training training, int64_t batch_size) {
    const absl::Status opened = Open(std::move(training));
    const absl::StatusOr<SizeTrial> timed = opened.ok() ? TimeOpened(batch_size) : opened;
    // What the host lacks is found out before it is used; a device says so itself.
    if (!absl::IsResourceExhausted(timed.status())) return timed;
    return SizeTrial{.why_too_large = std::string(timed.status().message())};
  }

 private:
  absl::Status Open(Training training) {
    const Input& input = training.input;
    repeats_ = input.largest_batch.has_value();
    ASSIGN_OR_RETURN(auto strategy, MakeStrategy(config_, devices_));
    train::EstimatorConfig estimator{config_.train};
    estimator.model_dir = files::JoinPath(config_.train.model_dir, "nothing");  // there is no such directory
    estimator.use = train::ModelDir::Use::kRead;
    // No step is refused or skipped for its numbers: a rate that is too high for a size is not this choice's matter.
    estimator.loss_scale = {};
    training.model.learning_rate = [](int64_t) { return 0.0; };
    estimator.resume = train::Resume::kAuto;
    ASSIGN_OR_RETURN(estimator_,
                     train::Estimator::Create(std::move(training.model), std::move(estimator), std::move(strategy)));
    if (repeats_) {
      ASSIGN_OR_RETURN(source_, input.largest_batch->Make());
    } else {
      ASSIGN_OR_RETURN(source_, input.train({.seed = config_.train.seed,
                                             .end_epoch = data::kEndless,
                                             .rows = estimator_->held_rows(train::Mode::kTrain)}));
    }
    ASSIGN_OR_RETURN(std::optional<data::Batch> batch, source_->Next());
    if (!batch) return absl::DataLossError(absl::StrCat("the training data (", input.dataset, ") have no batch"));
    batch_ = *std::move(batch);
    return absl::OkStatus();
  }

  absl::StatusOr<SizeTrial> TimeOpened(int64_t batch_size) {
    ASSIGN_OR_RETURN(const train::TrainingMemory memory, estimator_->MemoryOfTraining(source_->spec(), batch_));
    if (const std::string why = WhyTooLarge(memory); !why.empty()) return SizeTrial{.why_too_large = why};
    RETURN_IF_ERROR(Train(1).status());  // compiles, and chooses algorithms
    ASSIGN_OR_RETURN(double seconds, Train(1));
    int64_t steps = std::clamp<int64_t>(std::llround(kTimedSeconds / std::max(seconds, 1e-6)), 1, kMaxTimedSteps);
    if (steps > 1) {
      ASSIGN_OR_RETURN(seconds, Train(steps));
    }
    RETURN_IF_ERROR(CheckFreeMemory(memory));
    return SizeTrial{.examples_per_sec = static_cast<double>(steps * batch_size) / seconds};
  }

  // Returns why the host has too little memory; "" if it has enough.
  std::string WhyTooLarge(const train::TrainingMemory& memory) const {
    if (free_bytes_ < 0) return "";
    const auto needed = static_cast<double>(memory.host_bytes), free = static_cast<double>(free_bytes_);
    if (needed <= train::kChosenShare * free) return "";
    return absl::StrFormat("it needs about %s, and of the %s that are free at most %.0f%% are used",
                           misc::SizeText(needed), misc::SizeText(free), 100 * train::kChosenShare);
  }

  // ResourceExhausted if a device has less memory left than should stay free.
  absl::Status CheckFreeMemory(const train::TrainingMemory& memory) const {
    compute::Device& device = estimator_->strategy().device(0);
    if (device.uses_host_memory()) return absl::OkStatus();
    const auto bytes =
        static_cast<int64_t>(kFreeShareOfDevice * static_cast<double>(memory.intermediate_bytes.value_or(0)));
    return device.Allocate(bytes).status();
  }

  // Trains some steps. Returns the seconds that they take.
  absl::StatusOr<double> Train(int64_t steps) {
    const auto input = [&](data::Position) -> absl::StatusOr<data::BatchSourcePtr> {
      return std::make_unique<SomeBatches>(*source_, batch_, repeats_);
    };
    const double begin = Seconds();
    const int64_t end_step = estimator_->global_step() + steps;
    RETURN_IF_ERROR(estimator_->Train(input, end_step, {}));
    return Seconds() - begin;
  }

  const Config& config_;
  const Devices& devices_;
  const int64_t free_bytes_;  // of the host, before anything was tried; -1: not known
  bool repeats_ = false;      // true: there are only made-up batches of the largest shape
  std::unique_ptr<train::Estimator> estimator_;
  data::BatchSourcePtr source_;
  data::Batch batch_;
};

}  // namespace

absl::Status CheckBatchSize(const Config& config) {
  if (config.base.batch_size != 0) return absl::OkStatus();
  constexpr char kFlag[] = "--batch_size=auto";
  if (config.performance.distribution_strategy == "tpu") {
    return absl::InvalidArgumentError(absl::StrCat(
        kFlag,
        " chooses no size for the devices of --distribution_strategy=tpu, which compile for each; give a number"));
  }
  const absl::Status alone = CheckAlone(config, kFlag);
  if (alone.ok()) return alone;
  return absl::Status(alone.code(), absl::StrCat(alone.message(), "; or give all of them the same --batch_size=N"));
}

absl::Status ChooseBatchSize(const BatchSizeOptions& options, Config& config, Session* session) {
  if (config.base.batch_size != 0) return absl::OkStatus();
  if (session == nullptr) RETURN_IF_ERROR(CheckBatchSize(config));  // else it has
  const int64_t free_bytes = misc::AvailableMemory();
  ASSIGN_OR_RETURN(const Devices devices, DevicesFor(config));
  const int64_t unit = options.per_example * devices.num_replicas;
  ASSIGN_OR_RETURN(const Training smallest, options.training(static_cast<int>(unit)));
  const int64_t num_examples = smallest.input.num_train_examples;
  const int64_t of_data = num_examples * options.per_example;
  const SizeRange range = {.unit = unit,
                           .first = kFirstExamples * unit,
                           .largest = std::min(of_data, options.largest),
                           .why_largest = options.largest < of_data
                                              ? absl::StrCat("the largest is ", options.largest)
                                              : absl::StrCat("the training data have ", num_examples, " examples"),
                           .counted = options.counted};
  const logs::TaskProgress progress({.title = "choosing the batch size"});
  const double begin = Seconds();
  const auto attempt = [&](int64_t batch_size) -> absl::StatusOr<SizeTrial> {
    ASSIGN_OR_RETURN(Training training, options.training(static_cast<int>(batch_size)));
    return Attempt(config, devices, free_bytes).Time(std::move(training), batch_size);
  };
  ASSIGN_OR_RETURN(const ChosenSize chosen, SearchBatchSize(range, attempt, [&] { return Seconds() - begin; }));
  const std::string flag = absl::StrCat("--batch_size=", chosen.batch_size);
  logs::LogEvent("batch_size",
                 absl::StrCat("--batch_size=auto takes ", chosen.batch_size, ": ", chosen.why, "; ", flag,
                              " gives the same in another run"),
                 {{"batch_size", chosen.batch_size}, {"examples_per_sec", chosen.examples_per_sec}});
  config.base.batch_size = static_cast<int>(chosen.batch_size);
  config.train.flags_text = absl::StrReplaceAll(config.train.flags_text, {{"--batch_size=auto\n", flag + "\n"}});
  if (session != nullptr) session->SetBatchSize(config);
  return absl::OkStatus();
}

}  // namespace official::run
