// check_tfrecords_main FILE...: reads TFRecord files of images to the last pixel and names every bad record.
#include <algorithm>
#include <iostream>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "official/resnet/imagenet/check_records.h"
#include "utils/compute/core/status.h"
#include "utils/flags/console.h"
#include "utils/flags/main.h"
#include "utils/flags/skip_bad_records.h"
#include "utils/logs/live_line.h"

ABSL_FLAG(std::optional<int>, num_classes, std::nullopt, "Number of classes: a label must be below it.");

namespace official::resnet {
namespace {

// Training would go on without such records.
flags::FlagSpec SkipFlag() {
  flags::FlagSpec flag = flags::SkipBadRecordsFlag();
  flag.key = true;
  return flag;
}

flags::Program CheckerProgram() {
  return {
      .name = "check_tfrecords_main",
      .description =
          "Checks TFRecord files of images: the checksums, features and image of every record. Prints one line for "
          "each bad record, with its file, number and offset and what is wrong. The exit status is 65 if there are "
          "more "
          "than --skip_bad_records.",
      .examples = {{"check_tfrecords_main records", "check the training and validation files in a directory"},
                   {"check_tfrecords_main records/train-00007-of-00016", "check one file"}},
      .flags = {.name = "check_tfrecords",
                .flags = {{.name = "num_classes",
                           .key = true,
                           .range = flags::AtLeast(1),
                           .unset_means =
                               "the number of lines of labels.txt in the files' directory, or 1001 without labels.txt"},
                          SkipFlag(),
                          flags::OutputFlag(),
                          flags::LogFormatFlag()}},
      .words = "FILE_OR_DIRECTORY...",
      .shared_flags = false,
  };
}

void PrintBad(const std::string& what) {
  logs::AboveLiveLine([&] {
    if (flags::WantsJson()) {
      flags::PrintJson({{"event", "bad_record"}, {"message", what}}, std::cout);
    } else {
      std::cout << what << std::endl;
    }
  });
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::StartLog());
  if (command_line.words().empty()) {
    return absl::InvalidArgumentError("name the files to check, or the directory that holds them");
  }
  const CheckOptions options{.paths = command_line.words(),
                             .num_classes = absl::GetFlag(FLAGS_num_classes),
                             .num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
  ASSIGN_OR_RETURN(const CheckResult result, CheckRecords(options, PrintBad));
  if (flags::WantsJson()) {
    flags::PrintJson({{"event", "end"},
                      {"files", result.num_files},
                      {"records", result.num_records},
                      {"bad_records", result.num_bad}},
                     std::cout);
  }
  if (result.num_bad > flags::SkipBadRecords()) {
    return absl::DataLossError(
        absl::StrFormat("%d of %d records in %d files are bad", result.num_bad, result.num_records, result.num_files));
  }
  if (flags::WantsJson()) return absl::OkStatus();
  std::cout << result.num_records - result.num_bad << " records in " << result.num_files << " files are good";
  if (result.num_bad > 0) std::cout << ", " << result.num_bad << " are bad";
  std::cout << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::resnet

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::resnet::CheckerProgram(), official::resnet::Main);
}
