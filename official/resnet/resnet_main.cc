// resnet_main: trains, evaluates and uses the official residual networks for CIFAR-10 and ImageNet.

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/resnet/resnet_run.h"
#include "utils/compute/core/status.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/image.h"
#include "utils/flags/predict.h"
#include "utils/flags/skip_bad_records.h"
#include "utils/run/standalone/main.h"
#include "utils/train/options.h"

ABSL_FLAG(std::string, dataset_name, "imagenet",
          "Data set. The defaults of the network, the learning rate, epochs, batch size and directories depend on it.");
ABSL_FLAG(std::string, resnet_version, "2",
          "Version of the network. 1: He et al. 2015; 2: He et al. 2016, with batch normalization before each "
          "convolution.");
ABSL_FLAG(std::string, resnet_size, "50",
          "Number of layers. ImageNet: 18, 34, 50, 101, 152 or 200; CIFAR-10: 6n + 2, for example 20, 32 or 56.");
ABSL_FLAG(
    double, base_learning_rate, 0.1,
    "Initial learning rate for a batch of 256 (CIFAR-10: 128) examples. It is scaled linearly with --batch_size.");
ABSL_FLAG(
    std::string, lr_schedule, "piecewise",
    "How the learning rate falls. piecewise: by --lr_factors at --lr_boundary_epochs; cosine, linear: to 0 at the "
    "end of --train_epochs, whether or not --max_train_steps ends the run before; constant: not at all.");
ABSL_FLAG(std::vector<std::string>, lr_boundary_epochs, {},
          "Epochs after which the learning rate changes, in increasing order.");
ABSL_FLAG(
    std::vector<std::string>, lr_factors, {},
    "Factors of the initial learning rate: one before the first epoch of --lr_boundary_epochs and one after each.");
ABSL_FLAG(double, warmup_epochs, 0, "Epochs at the start in which the learning rate rises linearly from 0.");
ABSL_FLAG(double, weight_decay, 1e-4, "Factor of the L2 loss of the weights.");
ABSL_FLAG(double, label_smoothing, 0,
          "Label smoothing: the fraction of the target probability that is spread evenly over all classes.");
ABSL_FLAG(std::optional<int>, num_classes, std::nullopt,
          "Number of classes of the images in TFRecord files, including class 0, the background: a label must be below "
          "it.");
ABSL_FLAG(
    double, batch_norm_momentum, 0.997,
    "Momentum of the moving averages of batch normalization, which evaluations use. Fewer than 1000 training steps "
    "need a smaller one, such as 0.9.");
ABSL_FLAG(bool, sync_batch_norm, false,
          "With several devices: batch normalization uses the statistics of the global batch, not of each device's "
          "part of it.");
ABSL_FLAG(bool, fast_jpeg, false,
          "Decode large JPEG images at a reduced size: faster, but the pixels are not exactly TensorFlow's.");
ABSL_FLAG(std::optional<std::string>, fine_tune, std::nullopt,
          "Checkpoint, or --model_dir of another run, from which a new run takes the initial values of its variables. "
          "Variables of another shape start at random: the last layer, if the number of classes differs.");
ABSL_FLAG(std::optional<int>, top_k, std::nullopt, "Number of classes that --predict prints for each image.");
ABSL_FLAG(std::string, label_file, "",
          "Text file with the names of the classes, one per line, starting with class 0 (the background), instead of "
          "labels.txt in --data_dir or --model_dir.");

namespace official::resnet {
namespace {

DatasetName DatasetFromFlag() {
  return absl::GetFlag(FLAGS_dataset_name) == "cifar10" ? DatasetName::kCifar10 : DatasetName::kImagenet;
}

// In the order of LrSchedule.
constexpr std::array<absl::string_view, 4> kLrSchedules = {"piecewise", "cosine", "linear", "constant"};

LrSchedule LrScheduleFromFlag() {
  const auto* const name = std::find(kLrSchedules.begin(), kLrSchedules.end(), absl::GetFlag(FLAGS_lr_schedule));
  return static_cast<LrSchedule>(name - kLrSchedules.begin());
}

// The numbers of a list flag; nothing if one of them is none, or not finite.
std::optional<std::vector<double>> Numbers(const std::vector<std::string>& items) {
  std::vector<double> numbers;
  for (const std::string& item : items) {
    if (!absl::SimpleAtod(item, &numbers.emplace_back()) || !std::isfinite(numbers.back())) return std::nullopt;
  }
  return numbers;
}

absl::Status CheckNetwork(const flags::CommandLine&) {
  const std::string& text = absl::GetFlag(FLAGS_resnet_size);
  int size = 0;
  if (!absl::SimpleAtoi(text, &size)) return flags::FlagError("resnet_size", "needs an integer, the number of layers");
  const absl::Status status = CheckSize(DatasetFromFlag(), size);
  if (status.ok()) return status;
  const bool is_cifar10 = DatasetFromFlag() == DatasetName::kCifar10;
  const bool other_has_it = CheckSize(is_cifar10 ? DatasetName::kImagenet : DatasetName::kCifar10, size).ok();
  const absl::string_view other = is_cifar10 ? "imagenet" : "cifar10";
  return flags::FlagError(
      "resnet_size",
      absl::StrCat(status.message(), other_has_it ? absl::StrCat("; did you forget --dataset_name=", other, "?") : ""));
}

// As upstream from May to August 2018.
absl::Status NoHalfPrecisionOfVersion1(const flags::CommandLine&) {
  if (absl::GetFlag(FLAGS_resnet_version) != "1" ||
      flags::FromFlags<train::TrainOptions>().dtype != compute::DType::kFloat16) {
    return absl::OkStatus();
  }
  return flags::FlagError("dtype",
                          "cannot be combined with --resnet_version=1; use --resnet_version=2 or --dtype=bf16");
}

absl::Status CheckSchedule(const flags::CommandLine&) {
  const auto boundaries = Numbers(absl::GetFlag(FLAGS_lr_boundary_epochs));
  const auto factors = Numbers(absl::GetFlag(FLAGS_lr_factors));
  if (!boundaries) return flags::FlagError("lr_boundary_epochs", "needs a comma-separated list of finite numbers");
  if (!factors) return flags::FlagError("lr_factors", "needs a comma-separated list of finite numbers");
  for (size_t i = 0; i < boundaries->size(); ++i) {
    if ((*boundaries)[i] <= (i == 0 ? 0 : (*boundaries)[i - 1])) {
      return flags::FlagError("lr_boundary_epochs", "needs numbers above 0, each larger than the one before");
    }
  }
  for (const double factor : *factors) {
    if (factor < 0) return flags::FlagError("lr_factors", "needs numbers of at least 0");
  }
  if (factors->size() != boundaries->size() + 1) {
    return flags::FlagError("lr_factors", absl::StrCat("needs ", boundaries->size() + 1, " numbers, one more than ",
                                                       "--lr_boundary_epochs has; there are ", factors->size()));
  }
  return absl::OkStatus();
}

absl::Status CheckClasses(const flags::CommandLine&) {
  const std::optional<int> num_classes = absl::GetFlag(FLAGS_num_classes), top_k = absl::GetFlag(FLAGS_top_k);
  const bool cifar10 = DatasetFromFlag() == DatasetName::kCifar10;
  const int of_cifar10 = InfoOf(DatasetName::kCifar10).num_classes;
  if (cifar10 && num_classes.value_or(of_cifar10) != of_cifar10) {
    return flags::FlagError("num_classes", absl::StrCat("CIFAR-10 has ", of_cifar10,
                                                        " classes; images of other ones "
                                                        "are read from TFRecord files, with --dataset_name=imagenet"));
  }
  if (!num_classes && !cifar10) return absl::OkStatus();
  const int most = num_classes.value_or(of_cifar10);
  if (top_k.value_or(1) <= most) return absl::OkStatus();
  return flags::FlagError("top_k", absl::StrCat("needs at most ", most, ", the number of classes"));
}

absl::Status CheckSkipBadRecords(const flags::CommandLine& command_line) {
  if (DatasetFromFlag() == DatasetName::kImagenet || flags::SkipBadRecords() == 0) return absl::OkStatus();
  return flags::FlagError(flags::SkipBadRecordsFlag().name,
                          "has no effect on CIFAR-10, which is not read from TFRecords");
}

std::string List(const std::vector<double>& numbers) { return absl::StrJoin(numbers, ","); }

// The defaults of the program for the data set that --dataset_name names.
std::vector<std::pair<std::string, std::string>> DatasetDefaults() {
  const DatasetInfo& info = InfoOf(DatasetFromFlag());
  std::vector<std::pair<std::string, std::string>> defaults = {{"weight_decay", absl::StrCat(info.weight_decay)},
                                                               {"lr_boundary_epochs", List(info.boundary_epochs)},
                                                               {"lr_factors", List(info.factors)}};
  if (DatasetFromFlag() == DatasetName::kImagenet) {
    defaults.insert(defaults.end(), {{"data_dir", files::DefaultDataDir("imagenet_data")},
                                     {"model_dir", files::DefaultModelDir("imagenet_model")},
                                     {"train_epochs", "100"}});
  } else {
    defaults.insert(defaults.end(), {{"data_dir", files::DefaultDataDir("cifar10_data")},
                                     {"model_dir", files::DefaultModelDir("cifar10_model")},
                                     {"resnet_size", "32"},
                                     {"train_epochs", "250"},
                                     {"epochs_between_evals", "10"},
                                     {"batch_size", "128"}});
  }
  return defaults;
}

flags::Program ResnetProgram() {
  return {
      .name = "resnet_main",
      .description =
          "Trains a residual network (ResNet) to classify images, those of ImageNet, your own, or CIFAR-10, and "
          "evaluates it.",
      .examples = {{"resnet_main --num_gpus=4 --batch_size=1024 --data_dir=/data/imagenet", "train ResNet-50"},
                   {"resnet_main --dataset_name=cifar10", "train ResNet-32 on CIFAR-10"},
                   {"resnet_main --use_synthetic_data --max_train_steps=100 --model_dir=speed1",
                    "measure the training speed"},
                   {"resnet_main --data_dir=records --resnet_size=18 --batch_size=8 --train_epochs=60 "
                    "--batch_norm_momentum=0.9",
                    "train on your own images, converted by imagenet_to_tfrecords_main"},
                   {"resnet_main --data_dir=/data/imagenet --model_dir=run1 --eval_only", "evaluate a trained network"},
                   {"resnet_main --model_dir=run1 --predict=cat.jpg", "classify an image (JPEG or PNG files)"}},
      .dependent_defaults = DatasetDefaults,
      .help = {{"data_dir",
                "Directory of the data. ImageNet and your own images: TFRecord files train-*-of-* and "
                "validation-*-of-*. CIFAR-10: the directory in which cifar-10-batches-bin is."},
               {"stop_threshold", "Stop training when an evaluation's accuracy (0 to 1) is at least this value."}},
      .flags = {.name = "resnet",
                .flags = {{.name = "dataset_name", .key = true, .choices = {"imagenet", "cifar10"}},
                          {.name = "resnet_version", .short_name = "rv", .key = true, .choices = {"1", "2"}},
                          {.name = "resnet_size", .short_name = "rs", .key = true},
                          {.name = "base_learning_rate", .key = true, .range = flags::MoreThan(0)},
                          {.name = "lr_schedule", .choices = {kLrSchedules.begin(), kLrSchedules.end()}},
                          {.name = "lr_boundary_epochs"},
                          {.name = "lr_factors"},
                          {.name = "warmup_epochs", .range = flags::AtLeast(0)},
                          {.name = "weight_decay", .range = flags::AtLeast(0)},
                          {.name = "label_smoothing", .range = flags::Fraction()},
                          {.name = "num_classes",
                           .key = true,
                           .range = flags::AtLeast(2),
                           .unset_means = "the number of lines of labels.txt in --data_dir, or 1001 without it"},
                          {.name = "batch_norm_momentum", .range = flags::Fraction()},
                          {.name = "sync_batch_norm"},
                          {.name = "fast_jpeg"},
                          {.name = "fine_tune",
                           .key = true,
                           .unset_means = "random initial values",
                           .per_worker = true,
                           .input = true},
                          flags::PredictFlag(),
                          {.name = "top_k",
                           .range = flags::AtLeast(1),
                           .unset_means = "5, or all classes if there are fewer"},
                          {.name = "label_file", .per_worker = true, .input = true},
                          flags::SkipBadRecordsFlag()},
                .validators = {CheckNetwork, NoHalfPrecisionOfVersion1, CheckSchedule, CheckClasses,
                               CheckSkipBadRecords, flags::CheckPredictWords, flags::PredictAlone,
                               flags::ThresholdOf("stop_threshold", "accuracy", 1)}},
      .words = "[--predict IMAGE...]",
      .network = {{"dataset_name"}, {"resnet_version"}, {"resnet_size"}, {"num_classes"}},
      .rehearses = true,
  };
}

int FlagNumber(const std::string& text) {
  int number = 0;
  OFFICIAL_CHECK(absl::SimpleAtoi(text, &number)) << text;
  return number;
}

ResnetConfig ConfigFromFlags(const flags::CommandLine& command_line) {
  return {run::ConfigFromFlags(command_line),
          {.dataset = DatasetFromFlag(),
           .size = FlagNumber(absl::GetFlag(FLAGS_resnet_size)),
           .version = FlagNumber(absl::GetFlag(FLAGS_resnet_version)),
           .num_classes = absl::GetFlag(FLAGS_num_classes).value_or(0),
           .weight_decay = absl::GetFlag(FLAGS_weight_decay),
           .label_smoothing = absl::GetFlag(FLAGS_label_smoothing),
           .batch_norm_momentum = absl::GetFlag(FLAGS_batch_norm_momentum),
           .sync_batch_norm = absl::GetFlag(FLAGS_sync_batch_norm),
           .schedule = {.schedule = LrScheduleFromFlag(),
                        .base_learning_rate = absl::GetFlag(FLAGS_base_learning_rate),
                        .boundary_epochs = *Numbers(absl::GetFlag(FLAGS_lr_boundary_epochs)),
                        .factors = *Numbers(absl::GetFlag(FLAGS_lr_factors)),
                        .warmup_epochs = absl::GetFlag(FLAGS_warmup_epochs)}},
          absl::GetFlag(FLAGS_fast_jpeg),
          absl::GetFlag(FLAGS_fine_tune),
          flags::FilesToPredict(command_line),
          absl::GetFlag(FLAGS_top_k),
          absl::GetFlag(FLAGS_label_file),
          flags::SkipBadRecords()};
}

absl::Status Main(const flags::CommandLine& command_line) {
  const ResnetConfig config = ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  return RunResnet(config, std::cout);
}

}  // namespace
}  // namespace official::resnet

int main(int argc, char** argv) {
  return official::run::RunMain(argc, argv, official::resnet::ResnetProgram(), official::resnet::Main);
}
