// download_cifar10_main [DIRECTORY [ARCHIVE]]: puts the files of CIFAR-10 where resnet_main reads them.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "official/resnet/cifar10/download.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/console.h"
#include "utils/flags/data_dir.h"
#include "utils/flags/main.h"
#include "utils/flags/num_words.h"
#include "utils/logs/log.h"
#include "utils/misc/text.h"

namespace official::resnet {
namespace {

constexpr char kWords[] = "[DIRECTORY [ARCHIVE]]";

flags::Program DownloadProgram() {
  return {
      .name = "download_cifar10_main",
      .description =
          "Downloads CIFAR-10 (170 MB) to DIRECTORY or --data_dir, by default to where resnet_main looks for it, and "
          "unpacks it there. Complete files that are there already are kept, and an interrupted download resumes where "
          "it stopped. With ARCHIVE, a copy of cifar-10-binary.tar.gz, or --from_dir, nothing is downloaded.",
      .examples = {{"download_cifar10_main data",
                    "then train with: resnet_main --dataset_name=cifar10 --data_dir=data"},
                   {"download_cifar10_main data cifar-10-binary.tar.gz", "unpack a copy of the archive"},
                   {"download_cifar10_main data --from_dir=usb", "unpack the copy in a directory"}},
      .defaults = {{"data_dir", files::DefaultDataDir("cifar10_data")}},
      .flags = {.name = "download_cifar10",
                .flags = {flags::DataDirFlag("resnet_main"), flags::FromDirFlag(kCifar10Archive), flags::OutputFlag(),
                          flags::LogFormatFlag()}},
      .words = kWords,
      .shared_flags = false,
  };
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::CheckNumWords(command_line, kWords, 0, 2));
  const std::vector<std::string>& words = command_line.words();
  ASSIGN_OR_RETURN(const std::string data_dir, flags::DataDir(command_line));
  Cifar10Source source;
  if (words.size() == 2) source.archive = words[1];
  if (const std::string from_dir = flags::FromDir(); !from_dir.empty()) {
    if (words.size() == 2) {
      return flags::FlagError("from_dir", absl::StrCat("cannot be combined with the archive ",
                                                       misc::Printable(words[1]), "; leave out one of them"));
    }
    source.archive = files::JoinPath(from_dir, kCifar10Archive);
  }
  RETURN_IF_ERROR(flags::StartLog());
  RETURN_IF_ERROR(DownloadCifar10(data_dir, source));
  LOG(INFO) << "CIFAR-10 is in " << data_dir;
  if (flags::WantsJson()) {
    flags::PrintJson({{"event", "end"}, {"dataset", "CIFAR-10"}, {"data_dir", data_dir}}, std::cout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::resnet

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::resnet::DownloadProgram(), official::resnet::Main);
}
