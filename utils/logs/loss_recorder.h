// LossRecorder: a hook that keeps the loss of every training step.
#pragma once

#include <vector>

#include "utils/logs/hook.h"

namespace official::logs {

// Appends to `losses`, which outlives it.
template <typename Float>
class LossRecorder : public Hook {
 public:
  explicit LossRecorder(std::vector<Float>& losses) : losses_(losses) {}
  StepRequest BeforeStep(int64_t, TimePoint) override { return {.loss = true}; }
  absl::Status AfterStep(const StepInfo& step) override {
    losses_.push_back(static_cast<Float>(*step.loss));
    return absl::OkStatus();
  }

 private:
  std::vector<Float>& losses_;
};

}  // namespace official::logs
