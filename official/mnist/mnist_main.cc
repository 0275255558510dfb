// mnist_main: trains, evaluates and uses the official MNIST model.

#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "official/mnist/mnist_run.h"
#include "utils/compute/core/status.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/image.h"
#include "utils/flags/predict.h"
#include "utils/run/standalone/main.h"

ABSL_FLAG(double, learning_rate, 1e-4, "Learning rate of the Adam optimizer.");
ABSL_FLAG(double, dropout_rate, 0.4,
          "Dropout rate of the dense layer: the fraction of its outputs that training drops.");

namespace official::mnist {
namespace {

// Left to the program, the order is channels_last.
std::string OrderOfChannels(absl::string_view data_format) {
  return data_format.empty() ? "channels_last" : std::string(data_format);
}

flags::Program MnistProgram() {
  const std::string model_dir = files::DefaultModelDir("mnist_model");
  return {
      .name = "mnist_main",
      .description =
          "Trains a convolutional network to recognize the handwritten digits of MNIST, and evaluates it. MNIST is "
          "downloaded if it is missing; if that fails, the network is trained on digits that the program draws.",
      .examples = {{"mnist_main", absl::StrCat("train for 40 epochs in ", model_dir)},
                   {"mnist_main --train_epochs=5 --model_dir=run1", "train for 5 epochs, in a directory of your own"},
                   {"mnist_main --use_synthetic_data --max_train_steps=200 --model_dir=speed1",
                    "measure the training speed"},
                   {"mnist_main --model_dir=run1 --eval_only", "evaluate the latest checkpoint"},
                   {"mnist_main --model_dir=run1 --predict=seven.png", "classify a digit (PNG or IDX files)"}},
      .defaults = {{"data_dir", files::DefaultDataDir("mnist_data")},
                   {"model_dir", model_dir},
                   {"batch_size", "100"},
                   {"train_epochs", "40"}},
      .help = {{"data_dir",
                "Directory of MNIST's four files (IDX format, plain or .gz). Missing ones are downloaded to it; if "
                "that fails and this flag is not given, the program draws digits instead."},
               {"stop_threshold", "Stop training when an evaluation's accuracy (0 to 1) is at least this value."},
               {"data_format",
                "Order of the rows of dense/kernel in checkpoints: channels_first is that of TensorFlow's model with "
                "the same flag. The speed does not depend on it."}},
      .not_used = {{"augment", "MNIST's images are not augmented"},
                   {"num_parallel_calls", "MNIST is read into memory once"}},
      .flags = {.name = "mnist",
                .flags = {{.name = "learning_rate", .short_name = "lr", .key = true, .range = flags::MoreThan(0)},
                          {.name = "dropout_rate", .key = true, .range = flags::Fraction()},
                          flags::PredictFlag()},
                .validators = {flags::CheckPredictWords, flags::PredictAlone,
                               flags::ThresholdOf("stop_threshold", "accuracy", 1)}},
      .words = "[--predict IMAGE...]",
      .network = {{"data_format", OrderOfChannels}},
      .rehearses = true,
  };
}

MnistConfig ConfigFromFlags(const flags::CommandLine& command_line) {
  return {run::ConfigFromFlags(command_line),
          {.learning_rate = absl::GetFlag(FLAGS_learning_rate),
           .dropout_rate = absl::GetFlag(FLAGS_dropout_rate),
           .channels_first = flags::FromFlags<flags::ImageConfig>().data_format == "channels_first"},
          flags::FilesToPredict(command_line)};
}

absl::Status Main(const flags::CommandLine& command_line) {
  const MnistConfig config = ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  return RunMnist(config, std::cout);
}

}  // namespace
}  // namespace official::mnist

int main(int argc, char** argv) {
  return official::run::RunMain(argc, argv, official::mnist::MnistProgram(), official::mnist::Main);
}
