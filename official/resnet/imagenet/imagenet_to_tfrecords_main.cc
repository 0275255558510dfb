// imagenet_to_tfrecords_main: makes the TFRecord files that resnet_main trains on from folders of images.
#include <algorithm>
#include <iostream>
#include <thread>

#include "absl/flags/flag.h"
#include "official/resnet/imagenet/convert.h"
#include "utils/compute/core/status.h"
#include "utils/flags/console.h"
#include "utils/flags/main.h"

ABSL_FLAG(std::string, images_dir, "", "Directory with one folder of images per class.");
ABSL_FLAG(std::string, output_dir, "", "Directory to write the TFRecord files to: the --data_dir of resnet_main.");
ABSL_FLAG(std::string, split, "train", "Part of the data: train or validation. The names of the files begin with it.");
ABSL_FLAG(double, validation_fraction, 0,
          "Write the files of both splits: this fraction of each class's images is for validation, the rest for "
          "training.");
ABSL_FLAG(int, num_shards, 1,
          "Number of files to write; ImageNet has 1024 for training and 128 for validation. With "
          "--validation_fraction: number of files for training; there are an eighth as many for validation.");

namespace official::resnet {
namespace {

absl::Status OneWayToSplit(const flags::CommandLine& command_line) {
  if (absl::GetFlag(FLAGS_validation_fraction) == 0 || !command_line.given("split")) return absl::OkStatus();
  return flags::FlagError("split", "cannot be combined with --validation_fraction, which makes both splits");
}

flags::Program ConverterProgram() {
  return {
      .name = "imagenet_to_tfrecords_main",
      .description =
          "Converts folders of JPEG or PNG images, one folder per class, to the TFRecord files that resnet_main trains "
          "on. The folders, sorted by name, are the classes 1, 2, and so on; their names are written to labels.txt.",
      .examples = {{"imagenet_to_tfrecords_main --images_dir=photos --output_dir=records --validation_fraction=0.2",
                    "convert images for training and evaluation"},
                   {"imagenet_to_tfrecords_main --images_dir=photos/train --output_dir=records --num_shards=16",
                    "convert the images for training"},
                   {"imagenet_to_tfrecords_main --images_dir=photos/val --output_dir=records --split=validation",
                    "convert those for evaluation"}},
      .flags = {.name = "imagenet_to_tfrecords",
                .flags = {{.name = "images_dir", .key = true, .required = true},
                          {.name = "output_dir", .key = true, .required = true},
                          {.name = "split", .key = true, .choices = {"train", "validation"}},
                          {.name = "validation_fraction", .key = true, .range = flags::Fraction()},
                          {.name = "num_shards", .key = true, .range = {.min = 1, .max = 99999}},
                          flags::OutputFlag(),
                          flags::LogFormatFlag()},
                .validators = {OneWayToSplit}},
      .shared_flags = false,
  };
}

absl::Status Main(const flags::CommandLine&) {
  RETURN_IF_ERROR(flags::StartLog());
  const ConvertOptions options{.images_dir = absl::GetFlag(FLAGS_images_dir),
                               .output_dir = absl::GetFlag(FLAGS_output_dir),
                               .split = absl::GetFlag(FLAGS_split),
                               .validation_fraction = absl::GetFlag(FLAGS_validation_fraction),
                               .num_shards = absl::GetFlag(FLAGS_num_shards),
                               .num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
  ASSIGN_OR_RETURN(const ConvertResult result, ConvertToTFRecords(options));
  if (flags::WantsJson()) {
    flags::PrintJson({{"event", "end"},
                      {"output_dir", options.output_dir},
                      {"images", result.num_images},
                      {"classes", result.num_classes},
                      {"files", options.num_shards},
                      {"validation_images", result.num_validation_images},
                      {"validation_files", result.num_validation_shards}},
                     std::cout);
    return absl::OkStatus();
  }
  std::cout << result.num_images << " images of " << result.num_classes << " classes in " << options.num_shards
            << " files in " << options.output_dir;
  if (result.num_validation_images > 0) {
    std::cout << ", " << result.num_validation_images << " of the images for validation in "
              << result.num_validation_shards << " more";
  }
  std::cout << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::resnet

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::resnet::ConverterProgram(), official::resnet::Main);
}
