// The expected epochs and learning rates are those of Keras 3.15's callbacks for the same values.
#include "utils/train/keras/callbacks.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace official::keras {
namespace {

using Catch::Matchers::Contains;

const std::vector<double> kLosses = {1.0, 0.9, 0.9, 0.95, 0.8, 0.8, 0.8, 0.85, 0.79995, 0.79, 0.79, 0.79, 0.79};
const std::vector<double> kAccuracies = {0.5, 0.6, 0.6, 0.59, 0.7, 0.7, 0.69, 0.68, 0.71, 0.7, 0.7, 0.7, 0.7};

// The epoch after which the training stops; -1: never.
int64_t StoppedEpoch(EarlyStoppingOptions options, const std::vector<double>& values) {
  const auto callback = EarlyStopping(options);
  Training training = {.learning_rate = 0.1F};
  for (size_t epoch = 0; epoch < values.size(); ++epoch) {
    const Logs logs = {{"loss", 0}, {options.monitor, values[epoch]}};
    REQUIRE(callback->OnEpochEnd(static_cast<int64_t>(epoch), logs, training).ok());
    if (training.stop_training) return static_cast<int64_t>(epoch);
  }
  return -1;
}

TEST_CASE("EarlyStopping stops after the epoch after which Keras does") {
  const std::pair<EarlyStoppingOptions, int64_t> cases[] = {
      {{}, 2},
      {{.patience = 1}, 2},
      {{.patience = 2}, 3},
      {{.patience = 3}, 7},
      {{.min_delta = 0.02, .patience = 2}, 3},
      {{.patience = 2, .baseline = 0.85}, 2},
      {{.patience = 1, .start_from_epoch = 5}, 6},
      {{.patience = 5}, -1},
  };
  for (const auto& [options, stopped] : cases) CHECK(StoppedEpoch(options, kLosses) == stopped);
  CHECK(StoppedEpoch({.monitor = "val_accuracy", .patience = 3, .mode = Mode::kMax}, kAccuracies) == 7);
}

std::vector<float> LearningRates(ReduceLROnPlateauOptions options, const std::vector<double>& values) {
  const auto callback = ReduceLROnPlateau(options);
  Training training = {.learning_rate = 0.1F};
  std::vector<float> rates;
  for (size_t epoch = 0; epoch < values.size(); ++epoch) {
    REQUIRE(callback->OnEpochEnd(static_cast<int64_t>(epoch), {{options.monitor, values[epoch]}}, training).ok());
    rates.push_back(training.learning_rate);
  }
  CHECK_FALSE(training.stop_training);
  return rates;
}

TEST_CASE("ReduceLROnPlateau has Keras's learning rates, to the bit") {
  CHECK(LearningRates({.patience = 2}, kLosses) ==
        std::vector<float>{0.10000000149011612F, 0.10000000149011612F, 0.10000000149011612F, 0.009999999776482582F,
                           0.009999999776482582F, 0.009999999776482582F, 0.0009999999310821295F, 0.0009999999310821295F,
                           9.99999901978299e-05F, 9.99999901978299e-05F, 9.99999901978299e-05F, 9.99999883788405e-06F,
                           9.99999883788405e-06F});
  CHECK(LearningRates({.factor = 0.5, .patience = 2}, kLosses) ==
        std::vector<float>{0.10000000149011612F, 0.10000000149011612F, 0.10000000149011612F, 0.05000000074505806F,
                           0.05000000074505806F, 0.05000000074505806F, 0.02500000037252903F, 0.02500000037252903F,
                           0.012500000186264515F, 0.012500000186264515F, 0.012500000186264515F, 0.0062500000931322575F,
                           0.0062500000931322575F});
  CHECK(LearningRates({.patience = 1, .cooldown = 2}, kLosses) ==
        std::vector<float>{0.10000000149011612F, 0.10000000149011612F, 0.009999999776482582F, 0.009999999776482582F,
                           0.009999999776482582F, 0.0009999999310821295F, 0.0009999999310821295F, 9.99999901978299e-05F,
                           9.99999901978299e-05F, 9.99999901978299e-05F, 9.99999883788405e-06F, 9.99999883788405e-06F,
                           9.99999883788405e-07F});
  CHECK(LearningRates({.factor = 0.5, .patience = 1, .min_lr = 0.03}, kLosses) ==
        std::vector<float>{0.10000000149011612F, 0.10000000149011612F, 0.05000000074505806F, 0.029999999329447746F,
                           0.029999999329447746F, 0.029999999329447746F, 0.029999999329447746F, 0.029999999329447746F,
                           0.029999999329447746F, 0.029999999329447746F, 0.029999999329447746F, 0.029999999329447746F,
                           0.029999999329447746F});
  CHECK(LearningRates({.patience = 2, .min_delta = 0}, kLosses) ==
        std::vector<float>{0.10000000149011612F, 0.10000000149011612F, 0.10000000149011612F, 0.009999999776482582F,
                           0.009999999776482582F, 0.009999999776482582F, 0.0009999999310821295F, 0.0009999999310821295F,
                           0.0009999999310821295F, 0.0009999999310821295F, 0.0009999999310821295F,
                           9.99999901978299e-05F, 9.99999901978299e-05F});
  CHECK(LearningRates({.monitor = "val_accuracy", .factor = 0.5, .patience = 2, .mode = Mode::kMax}, kAccuracies) ==
        std::vector<float>{0.10000000149011612F, 0.10000000149011612F, 0.10000000149011612F, 0.05000000074505806F,
                           0.05000000074505806F, 0.05000000074505806F, 0.02500000037252903F, 0.02500000037252903F,
                           0.02500000037252903F, 0.02500000037252903F, 0.012500000186264515F, 0.012500000186264515F,
                           0.0062500000931322575F});
}

TEST_CASE("A metric that an epoch does not have is an error that lists those that it has") {
  Training training = {.learning_rate = 0.1F};
  const absl::Status status = EarlyStopping()->OnEpochEnd(0, {{"loss", 1}, {"accuracy", 0}}, training);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "EarlyStopping monitors val_loss, which an epoch does not have; it has loss, accuracy");
  CHECK(absl::IsInvalidArgument(ReduceLROnPlateau()->OnEpochEnd(0, {}, training)));
  const absl::Status factor = ReduceLROnPlateau({.factor = 1})->OnEpochEnd(0, {{"val_loss", 1}}, training);
  CHECK_THAT(std::string(factor.message()), Contains("ReduceLROnPlateau does not support a factor >= 1.0"));
}

}  // namespace
}  // namespace official::keras
