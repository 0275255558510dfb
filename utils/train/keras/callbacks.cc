#include "utils/train/keras/callbacks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/train/keras/monitor.h"

namespace official::keras {
namespace {

class EarlyStoppingCallback : public Callback {
 public:
  explicit EarlyStoppingCallback(const EarlyStoppingOptions& options)
      : options_(options), best_(WorstOf(options.mode)) {}

  absl::Status OnEpochEnd(int64_t epoch, Logs& logs, Training& training) override {
    ASSIGN_OR_RETURN(const double value, ValueOf(logs, options_.monitor, "EarlyStopping"));
    if (epoch < options_.start_from_epoch) return absl::OkStatus();
    ++wait_;
    const bool is_better = IsBetter(value, best_, options_.mode, options_.min_delta);
    if (options_.restore_best_weights && (is_better || best_weights_.empty())) {
      ASSIGN_OR_RETURN(best_weights_, training.get_weights());
      best_epoch_ = epoch;
    }
    if (is_better) {
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

  absl::Status OnTrainEnd(Training& training) override {
    if (best_weights_.empty()) return absl::OkStatus();
    LOG(INFO) << "Restoring model weights from the end of the best epoch: " << best_epoch_ + 1;
    return training.set_weights(best_weights_);
  }

 private:
  const EarlyStoppingOptions options_;
  double best_;
  int64_t wait_ = 0;
  Weights best_weights_;
  int64_t best_epoch_ = 0;
};

class ReduceLROnPlateauCallback : public Callback {
 public:
  explicit ReduceLROnPlateauCallback(const ReduceLROnPlateauOptions& options)
      : options_(options), best_(WorstOf(options.mode)) {}

  absl::Status OnEpochEnd(int64_t epoch, Logs& logs, Training& training) override {
    if (options_.factor >= 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("ReduceLROnPlateau does not support a factor >= 1.0, and has ", options_.factor));
    }
    SetLog(logs, kLearningRate, training.learning_rate);
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

class LearningRateSchedulerCallback : public Callback {
 public:
  explicit LearningRateSchedulerCallback(std::function<double(int64_t, double)> schedule)
      : schedule_(std::move(schedule)) {}

  absl::Status OnEpochBegin(int64_t epoch, Training& training) override {
    training.learning_rate = static_cast<float>(schedule_(epoch, training.learning_rate));
    return absl::OkStatus();
  }
  absl::Status OnEpochEnd(int64_t epoch, Logs& logs, Training& training) override {
    SetLog(logs, kLearningRate, training.learning_rate);
    return absl::OkStatus();
  }

 private:
  const std::function<double(int64_t, double)> schedule_;
};

class LambdaCallbackCallback : public Callback {
 public:
  explicit LambdaCallbackCallback(LambdaCallbackOptions options) : options_(std::move(options)) {}

  absl::Status OnTrainBegin(Training& training) override {
    return options_.on_train_begin ? options_.on_train_begin(training) : absl::OkStatus();
  }
  absl::Status OnEpochBegin(int64_t epoch, Training& training) override {
    return options_.on_epoch_begin ? options_.on_epoch_begin(epoch, training) : absl::OkStatus();
  }
  absl::Status OnEpochEnd(int64_t epoch, Logs& logs, Training& training) override {
    return options_.on_epoch_end ? options_.on_epoch_end(epoch, logs, training) : absl::OkStatus();
  }
  absl::Status OnTrainEnd(Training& training) override {
    return options_.on_train_end ? options_.on_train_end(training) : absl::OkStatus();
  }

 private:
  const LambdaCallbackOptions options_;
};

}  // namespace

std::unique_ptr<Callback> EarlyStopping(const EarlyStoppingOptions& options) {
  return std::make_unique<EarlyStoppingCallback>(options);
}

std::unique_ptr<Callback> ReduceLROnPlateau(const ReduceLROnPlateauOptions& options) {
  return std::make_unique<ReduceLROnPlateauCallback>(options);
}

std::unique_ptr<Callback> LearningRateScheduler(std::function<double(int64_t epoch, double learning_rate)> schedule) {
  return std::make_unique<LearningRateSchedulerCallback>(std::move(schedule));
}

std::unique_ptr<Callback> LambdaCallback(LambdaCallbackOptions options) {
  return std::make_unique<LambdaCallbackCallback>(std::move(options));
}

}  // namespace official::keras
