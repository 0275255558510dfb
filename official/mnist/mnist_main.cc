// mnist_main: trains, evaluates and uses the official MNIST model.

#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "official/mnist/mnist_run.h"
#include "utils/compute/core/status.h"
#include "utils/flags/image.h"
#include "utils/flags/main.h"

ABSL_FLAG(double, learning_rate, 1e-4, "Learning rate of Adam.");
ABSL_FLAG(double, dropout_rate, 0.4, "Share of the dense layer's outputs that training drops.");
ABSL_FLAG(std::vector<std::string>, predict, {},
          "Image files (PNG or IDX) to classify with the trained model, in place of training.");

namespace official::mnist {
namespace {

// --predict takes files separated by commas, and words after it: --predict a.png b.png.
absl::Status CheckWords(const flags::CommandLine& command_line) {
  if (command_line.words().empty() || command_line.given("predict")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", command_line.words()[0], "' is not a flag; image files follow --predict=FILE only"));
}

flags::Program MnistProgram() {
  return {
      .name = "mnist_main",
      .description =
          "Trains a convolutional network to read handwritten digits and evaluates it. Without data it downloads "
          "MNIST; "
          "without a network it trains on digits that it draws itself.",
      .examples = {{"mnist_main", "train for 40 epochs into /tmp/mnist_model"},
                   {"mnist_main --train_epochs=5 --model_dir=run1", "a shorter run in a directory of its own"},
                   {"mnist_main --use_synthetic_data --max_train_steps=200", "measure the speed of training"},
                   {"mnist_main --model_dir=run1 --predict=seven.png", "read a digit"}},
      .defaults = {{"data_dir", "/tmp/mnist_data"},
                   {"model_dir", "/tmp/mnist_model"},
                   {"batch_size", "100"},
                   {"train_epochs", "40"}},
      .flags = {.name = "mnist",
                .flags = {{.name = "learning_rate", .short_name = "lr", .key = true, .range = flags::MoreThan(0)},
                          {.name = "dropout_rate", .key = true, .range = flags::Fraction()},
                          {.name = "predict", .key = true}},
                .validators = {CheckWords}},
      .words = "IMAGE...",
  };
}

MnistConfig ConfigFromFlags(const flags::CommandLine& command_line) {
  MnistConfig config{run::ConfigFromFlags(command_line),
                     {.learning_rate = absl::GetFlag(FLAGS_learning_rate),
                      .dropout_rate = absl::GetFlag(FLAGS_dropout_rate),
                      .channels_first = flags::ImageFromFlags().data_format == "channels_first"},
                     absl::GetFlag(FLAGS_predict)};
  if (!config.predict.empty()) {
    config.predict.insert(config.predict.end(), command_line.words().begin(), command_line.words().end());
  }
  return config;
}

absl::Status Main(const flags::CommandLine& command_line) {
  const MnistConfig config = ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  return RunMnist(config, std::cout);
}

}  // namespace
}  // namespace official::mnist

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::mnist::MnistProgram(), official::mnist::Main);
}
