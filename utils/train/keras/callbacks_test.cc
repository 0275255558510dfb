// The expected epochs and learning rates are those of Keras 3.15's callbacks for the same values.
#include "utils/train/keras/callbacks.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"

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
    Logs logs = {{"loss", 0}, {options.monitor, values[epoch]}};
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
    Logs logs = {{options.monitor, values[epoch]}};
    REQUIRE(callback->OnEpochEnd(static_cast<int64_t>(epoch), logs, training).ok());
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
  Logs logs = {{"loss", 1}, {"accuracy", 0}}, none, val_loss = {{"val_loss", 1}};
  const absl::Status status = EarlyStopping()->OnEpochEnd(0, logs, training);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "EarlyStopping monitors val_loss, which an epoch does not have; it has loss, accuracy");
  CHECK(absl::IsInvalidArgument(ReduceLROnPlateau()->OnEpochEnd(0, none, training)));
  CHECK(absl::IsInvalidArgument(
      ModelCheckpoint({.filepath = "m", .save_best_only = true})->OnEpochEnd(0, logs, training)));
  const absl::Status factor = ReduceLROnPlateau({.factor = 1})->OnEpochEnd(0, val_loss, training);
  CHECK_THAT(std::string(factor.message()), Contains("ReduceLROnPlateau does not support a factor >= 1.0"));
}

// The paths that are saved after each epoch; "" for none.
std::vector<std::string> Saved(const ModelCheckpointOptions& options, const std::vector<double>& values) {
  std::string saved;
  Training training = {.learning_rate = 0.1F, .save_weights = [&](const std::string& path) {
                         saved = path;
                         return absl::OkStatus();
                       }};
  const auto callback = ModelCheckpoint(options);
  std::vector<std::string> paths;
  for (size_t epoch = 0; epoch < values.size(); ++epoch) {
    saved.clear();
    Logs logs = {{options.monitor, values[epoch]}};
    REQUIRE(callback->OnEpochEnd(static_cast<int64_t>(epoch), logs, training).ok());
    paths.push_back(saved);
  }
  return paths;
}

std::vector<bool> AreSaved(const ModelCheckpointOptions& options, const std::vector<double>& values) {
  std::vector<bool> are_saved;
  for (const std::string& path : Saved(options, values)) are_saved.push_back(!path.empty());
  return are_saved;
}

TEST_CASE("ModelCheckpoint saves after the epochs after which Keras does") {
  const bool x = true, o = false;
  CHECK(AreSaved({.filepath = "m", .save_best_only = true}, kLosses) ==
        std::vector<bool>{x, x, o, o, x, o, o, o, x, x, o, o, o});
  CHECK(AreSaved({.filepath = "m", .save_best_only = true, .initial_value_threshold = 0.9}, kLosses) ==
        std::vector<bool>{o, o, o, o, x, o, o, o, x, x, o, o, o});
  CHECK(AreSaved({.filepath = "m", .monitor = "val_accuracy", .save_best_only = true, .mode = Mode::kMax},
                 kAccuracies) == std::vector<bool>{x, x, o, o, x, o, o, o, x, o, o, o, o});
  CHECK(AreSaved({.filepath = "m"}, kLosses) == std::vector<bool>(kLosses.size(), x));
}

TEST_CASE("ModelCheckpoint says what it saves in Keras's words") {
  logs::CapturedLog captured(logs::LogFormat::kSimple);
  Saved({.filepath = "m", .save_best_only = true}, {0.0353278, 0.07718, 0.01});
  const std::string log = captured.Text();
  CHECK_THAT(log, Contains("Epoch 1: val_loss improved from None to 0.03533, saving model to m"));
  CHECK_THAT(log, Contains("Epoch 2: val_loss did not improve from 0.03533"));
  CHECK_THAT(log, Contains("Epoch 3: val_loss improved from 0.03533 to 0.01000, saving model to m"));
}

TEST_CASE("The path of a checkpoint is formatted as Python formats it") {
  const auto path = [](const std::string& filepath) {
    return Saved({.filepath = filepath, .monitor = "b"}, std::vector<double>(7, 0.123456)).back();
  };
  CHECK(path("{epoch:5d}|{epoch:05d}|{epoch}|{b:.2f}|{b:9.3e}|{b:g}|{b}|{b:08.3f}") ==
        "    7|00007|7|0.12|1.235e-01|0.123456|0.123456|0000.123");
  CHECK(path("{epoch:02d}/x") == "07/x");
  const auto value = [](double b) {
    return Saved({.filepath = "{b}", .monitor = "b"}, std::vector<double>(7, b)).back();
  };
  CHECK(value(0.03532779589295387) == "0.03532779589295387");
  CHECK(value(1) == "1.0");
  Training training = {.learning_rate = 0.1F};
  const auto error = [&](const std::string& filepath) {
    Logs logs = {{"b", 1}};
    return std::string(ModelCheckpoint({.filepath = filepath})->OnEpochEnd(0, logs, training).message());
  };
  CHECK(error("m-{epochs}") == "Failed to format this callback filepath: \"m-{epochs}\". Reason: 'epochs'");
  CHECK_THAT(error("m-{b"), Contains("a { without }"));
  for (const char* format : {"m-{epoch:.2f}", "m-{b:d}", "m-{b:x}", "m-{b:1.2.3f}", "m-{epoch:2.1d}"}) {
    CHECK_THAT(error(format), Contains("Reason: the format '"));
  }
}

std::string Csv(const CSVLoggerOptions& options, std::vector<Logs> epochs, bool is_chief = true) {
  Training training = {.learning_rate = 0.1F, .is_chief = is_chief};
  const auto callback = CSVLogger(options);
  REQUIRE(callback->OnTrainBegin(training).ok());
  for (size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    REQUIRE(callback->OnEpochEnd(static_cast<int64_t>(epoch), epochs[epoch], training).ok());
  }
  // Each line is there when its epoch has ended.
  const std::string before = is_chief ? files::ReadFile(options.filename, 10000).value() : "";
  REQUIRE(callback->OnTrainEnd(training).ok());
  if (!files::Exists(options.filename)) return "missing";
  const std::string text = files::ReadFile(options.filename, 10000).value();
  CHECK((!is_chief || text == before));
  return text;
}

TEST_CASE("CSVLogger writes the bytes of Keras 3.15") {
  const std::string filename = std::string(std::getenv("TEST_TMPDIR")) + "/log.csv";
  const Logs first = {{"loss", 2.7315378189086914},
                      {"error", 1.6194212436676025},
                      {"val_loss", 0.03532779589295387},
                      {"val_error", 0.14707477390766144}};
  const std::string lines =
      "epoch,error,loss,val_error,val_loss\r\n"
      "0,1.6194212436676025,2.7315378189086914,0.14707477390766144,0.03532779589295387\r\n";
  CHECK(Csv({.filename = filename}, {first}) == lines);
  CHECK(Csv({.filename = filename, .append = true}, {first}) == lines + lines.substr(lines.find('\n') + 1));
  const Logs without = {{"loss", 2.7315378189086914}, {"error", 1.6194212436676025}};
  CHECK(Csv({.filename = filename, .separator = ';'}, {without}) ==
        "epoch;error;loss;val_error;val_loss\r\n0;1.6194212436676025;2.7315378189086914;NA;NA\r\n");
  std::vector<Logs> numbers;
  for (const double value :
       {1.0, 0.0001, 0.00001, 1e16, 123456789.0, 1e22, std::nan(""), HUGE_VAL, -2.5, 1e15, 0.1 + 0.2, 0.0}) {
    numbers.push_back({{"loss", value}});
  }
  CHECK(Csv({.filename = filename}, numbers) ==
        "epoch,loss,val_loss\r\n0,1.0,NA\r\n1,0.0001,NA\r\n2,1e-05,NA\r\n3,1e+16,NA\r\n4,123456789.0,NA\r\n"
        "5,1e+22,NA\r\n6,nan,NA\r\n7,inf,NA\r\n8,-2.5,NA\r\n9,1000000000000000.0,NA\r\n"
        "10,0.30000000000000004,NA\r\n11,0.0,NA\r\n");
  // A new file that is appended to has a header; another worker writes none.
  CHECK(Csv({.filename = filename + ".new", .append = true}, {first}) == lines);
  CHECK(Csv({.filename = filename + ".worker"}, {first}, /*is_chief=*/false) == "missing");
}

}  // namespace
}  // namespace official::keras
