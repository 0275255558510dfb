// data_check PATH...: reads data files of all models to the end and names every bad record.
#include <algorithm>
#include <iostream>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "official/data_check/check_files.h"
#include "utils/compute/core/status.h"
#include "utils/flags/console.h"
#include "utils/flags/main.h"
#include "utils/flags/skip_bad_records.h"
#include "utils/logs/live_line.h"

ABSL_FLAG(std::optional<int>, num_classes, std::nullopt, "Number of classes of images: a label must be below it.");
ABSL_FLAG(std::optional<int>, vocab_size, std::nullopt,
          "Entries of the vocabulary: the id of a subtoken must be below it.");

namespace official::data_check {
namespace {

// Training would go on without such records.
flags::FlagSpec SkipFlag() {
  flags::FlagSpec flag = flags::SkipBadRecordsFlag();
  flag.key = true;
  flag.help = "Number of bad records or lines that may be there; they are printed all the same.";
  return flag;
}

flags::Program CheckerProgram() {
  return {
      .name = "data_check",
      .description =
          "Checks data files to their ends: TFRecord files of images and of sentence pairs, MNIST's IDX files, "
          "CIFAR-10's binary files, ratings, vocabularies, and text with its translation. Their contents tell which "
          "they are. Reads checksums, features, labels, images and lines as training does, and prints one line for "
          "each bad record, with its file, number and offset and what is wrong, and one for each file. The exit status "
          "is 65 if there are more than --skip_bad_records, 66 if a file is missing.",
      .examples = {{"data_check data", "check all data files in a directory"},
                   {"data_check records/train-00007-of-00016", "check one file"},
                   {"data_check train.en train.de", "check that a text and its translation have as many lines"}},
      .flags = {.name = "data_check",
                .flags = {{.name = "num_classes",
                           .key = true,
                           .range = flags::AtLeast(1),
                           .unset_means =
                               "the number of lines of labels.txt in the files' directory, or 1001 without labels.txt"},
                          {.name = "vocab_size",
                           .key = true,
                           .range = flags::AtLeast(1),
                           .unset_means = "that of the only file vocab.* in the files' directory, or no limit"},
                          SkipFlag(),
                          flags::OutputFlag(),
                          flags::LogFormatFlag()}},
      .words = "PATH...",
      .shared_flags = false,
  };
}

logs::Json OrNull(const std::optional<int64_t>& number) { return number ? logs::Json(*number) : logs::Json(); }

void PrintBad(const BadRecord& bad) {
  logs::AboveLiveLine([&] {
    if (flags::WantsJson()) {
      flags::PrintJson({{"event", "bad_record"},
                        {"file", bad.file},
                        {"record", OrNull(bad.record)},
                        {"line", OrNull(bad.line)},
                        {"offset", OrNull(bad.offset)},
                        {"message", bad.message}},
                       std::cout);
    } else {
      std::cout << bad.message << std::endl;
    }
  });
}

void PrintFile(const CheckedFile& file) {
  logs::AboveLiveLine([&] {
    if (flags::WantsJson()) {
      flags::PrintJson({{"event", "file"},
                        {"file", file.path},
                        {"contents", file.contents},
                        {"records", file.num_records},
                        {"bad_records", file.num_bad}},
                       std::cout);
      return;
    }
    std::cout << file.path << ": " << file.contents << ": " << file.num_records << " records, ";
    if (file.num_bad == 0) {
      std::cout << "all good" << std::endl;
    } else {
      std::cout << file.num_bad << " bad" << std::endl;
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
                             .vocab_size = absl::GetFlag(FLAGS_vocab_size),
                             .num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
  ASSIGN_OR_RETURN(const CheckResult result, CheckFiles(options, {.bad = PrintBad, .file = PrintFile}));
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
  std::cout << result.num_records << " records in " << result.num_files << " files, ";
  if (result.num_bad > 0) {
    std::cout << result.num_bad << " bad" << std::endl;
  } else {
    std::cout << "all good" << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::data_check

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::data_check::CheckerProgram(), official::data_check::Main);
}
