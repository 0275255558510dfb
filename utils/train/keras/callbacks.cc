#include "utils/train/keras/callbacks.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"

namespace official::keras {
namespace {

absl::StatusOr<double> ValueOf(const Logs& logs, const std::string& monitor, absl::string_view callback) {
  const auto found = std::find_if(logs.begin(), logs.end(), [&](const auto& log) { return log.first == monitor; });
  if (found != logs.end()) return found->second;
  const auto name = [](std::string* out, const auto& log) { absl::StrAppend(out, log.first); };
  return absl::InvalidArgumentError(absl::StrCat(
      callback, " monitors ", monitor, ", which an epoch does not have; it has ", absl::StrJoin(logs, ", ", name)));
}

bool IsBetter(double value, double than, Mode mode, double min_delta) {
  return mode == Mode::kMin ? value < than - min_delta : value > than + min_delta;
}

double WorstOf(Mode mode) {
  return mode == Mode::kMin ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

class EarlyStoppingCallback : public Callback {
 public:
  explicit EarlyStoppingCallback(const EarlyStoppingOptions& options)
      : options_(options), best_(WorstOf(options.mode)) {}

  absl::Status OnEpochEnd(int64_t epoch, const Logs& logs, Training& training) override {
    ASSIGN_OR_RETURN(const double value, ValueOf(logs, options_.monitor, "EarlyStopping"));
    if (epoch < options_.start_from_epoch) return absl::OkStatus();
    ++wait_;
    if (IsBetter(value, best_, options_.mode, options_.min_delta)) {
      best_ = value;
      // A value that is not as good as the baseline is the best so far, but waited for no less.
      if (!options_.baseline || IsBetter(value, *options_.baseline, options_.mode, options_.min_delta)) wait_ = 0;
      return absl::OkStatus();
    }
    if (wait_ < options_.patience || epoch == 0) return absl::OkStatus();
    LOG(INFO) << "epoch " << epoch + 1 << ": early stopping, since " << options_.monitor << " is no better than "
              << best_;
    training.stop_training = true;
    return absl::OkStatus();
  }

 private:
  const EarlyStoppingOptions options_;
  double best_;
  int64_t wait_ = 0;
};

class ReduceLROnPlateauCallback : public Callback {
 public:
  explicit ReduceLROnPlateauCallback(const ReduceLROnPlateauOptions& options)
      : options_(options), best_(WorstOf(options.mode)) {}

  absl::Status OnEpochEnd(int64_t epoch, const Logs& logs, Training& training) override {
    if (options_.factor >= 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("ReduceLROnPlateau does not support a factor >= 1.0, and has ", options_.factor));
    }
    ASSIGN_OR_RETURN(const double value, ValueOf(logs, options_.monitor, "ReduceLROnPlateau"));
    if (cooldown_left_ > 0) {
      --cooldown_left_;
      wait_ = 0;
    }
    if (IsBetter(value, best_, options_.mode, options_.min_delta)) {
      best_ = value;
      wait_ = 0;
      return absl::OkStatus();
    }
    if (cooldown_left_ > 0 || ++wait_ < options_.patience) return absl::OkStatus();
    const double old = training.learning_rate;
    if (old <= static_cast<float>(options_.min_lr)) return absl::OkStatus();
    training.learning_rate = static_cast<float>(std::max(old * options_.factor, options_.min_lr));
    cooldown_left_ = options_.cooldown;
    wait_ = 0;
    LOG(INFO) << "epoch " << epoch + 1 << ": ReduceLROnPlateau reducing learning rate to " << training.learning_rate;
    return absl::OkStatus();
  }

 private:
  const ReduceLROnPlateauOptions options_;
  double best_;
  int64_t wait_ = 0, cooldown_left_ = 0;
};

}  // namespace

std::unique_ptr<Callback> EarlyStopping(const EarlyStoppingOptions& options) {
  return std::make_unique<EarlyStoppingCallback>(options);
}

std::unique_ptr<Callback> ReduceLROnPlateau(const ReduceLROnPlateauOptions& options) {
  return std::make_unique<ReduceLROnPlateauCallback>(options);
}

}  // namespace official::keras
