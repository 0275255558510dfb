// input_benchmark_main: how many images a second the input of ResNet makes, without a model behind it.
#include <chrono>
#include <ctime>
#include <iostream>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "official/resnet/cifar10/dataset.h"
#include "official/resnet/imagenet/dataset.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/main.h"
#include "utils/flags/shared_groups.h"

ABSL_DECLARE_FLAG(std::string, data_dir);
ABSL_DECLARE_FLAG(int, batch_size);
ABSL_FLAG(std::string, dataset, "imagenet", "Which data set lies in --data_dir.");
ABSL_FLAG(std::string, split, "train", "train: distorted and shuffled images; validation: as in evaluation.");
ABSL_FLAG(int, num_threads, 1, "Threads that make images.");
ABSL_FLAG(int, seconds, 10, "How long to measure.");
ABSL_FLAG(bool, fast_jpeg, false, "Decode large JPEG images at a fraction of their size.");

namespace official::resnet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSeed = 1;

flags::Program BenchmarkProgram() {
  return {
      .name = "input_benchmark_main",
      .description = "Reads, decodes and distorts images as for training, and prints how many a second.",
      .examples = {{"input_benchmark_main --data_dir=records", "measure one thread on ImageNet's files"},
                   {"input_benchmark_main --dataset=cifar10 --data_dir=cifar10_data", "measure CIFAR-10"}},
      .defaults = {{"data_dir", files::DefaultDataDir("imagenet_data")}},
      .flags = {.name = "input_benchmark",
                .flags = {flags::SharedFlag("data_dir"),
                          {.name = "dataset", .key = true, .choices = {"cifar10", "imagenet"}},
                          {.name = "split", .key = true, .choices = {"train", "validation"}},
                          flags::SharedFlag("batch_size"),
                          {.name = "num_threads", .key = true, .range = flags::AtLeast(1)},
                          {.name = "seconds", .key = true, .range = flags::AtLeast(1)},
                          {.name = "fast_jpeg", .key = true}}},
      .shared_flags = false,
  };
}

absl::StatusOr<data::DatasetPtr> OpenDataset(bool training) {
  if (absl::GetFlag(FLAGS_dataset) == "imagenet") {
    ASSIGN_OR_RETURN(
        const ImagenetRecords records,
        OpenImagenet(absl::GetFlag(FLAGS_data_dir), training ? ImagenetPart::kTrain : ImagenetPart::kValidation));
    return ImagenetDataset(records, {.augment = training, .seed = kSeed, .fast_jpeg = absl::GetFlag(FLAGS_fast_jpeg)});
  }
  ASSIGN_OR_RETURN(const Cifar10Split split,
                   LoadCifar10(absl::GetFlag(FLAGS_data_dir), training ? Cifar10Part::kTrain : Cifar10Part::kTest));
  return Cifar10Dataset(split, training, kSeed);
}

absl::Status Main(const flags::CommandLine&) {
  const bool training = absl::GetFlag(FLAGS_split) == "train";
  ASSIGN_OR_RETURN(data::DatasetPtr dataset, OpenDataset(training));
  if (training) dataset = data::Shuffle(std::move(dataset), kSeed);
  ASSIGN_OR_RETURN(const data::BatchSourcePtr batches,
                   data::Batches(std::move(dataset), {.batch_size = absl::GetFlag(FLAGS_batch_size),
                                                      .end_epoch = data::kEndless,
                                                      .across_epochs = true,
                                                      .num_threads = absl::GetFlag(FLAGS_num_threads)}));
  RETURN_IF_ERROR(batches->Next().status());  // touches memory and files for the first time
  const Clock::time_point begin = Clock::now();
  const std::clock_t processor_begin = std::clock();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  int64_t num_images = 0;
  while (elapsed() < absl::GetFlag(FLAGS_seconds)) {
    ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, batches->Next());
    num_images += batch->num_examples;
  }
  // On a busy machine the second number is the one to compare.
  const double processor_seconds = static_cast<double>(std::clock() - processor_begin) / CLOCKS_PER_SEC;
  std::cout << absl::StrFormat("%.1f images/s, %.1f per second of processor time", num_images / elapsed(),
                               num_images / processor_seconds)
            << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::resnet

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::resnet::BenchmarkProgram(), official::resnet::Main);
}
