// download_mnist_main [DIRECTORY]: puts the files of MNIST there, as mnist_main does when they are missing.
#include <iostream>

#include "official/mnist/dataset.h"
#include "utils/compute/core/status.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/console.h"
#include "utils/flags/data_dir.h"
#include "utils/flags/main.h"
#include "utils/flags/num_words.h"
#include "utils/logs/log.h"

namespace official::mnist {
namespace {

constexpr char kWords[] = "[DIRECTORY]";

flags::Program DownloadProgram() {
  return {
      .name = "download_mnist_main",
      .description =
          "Downloads MNIST (12 MB) to DIRECTORY or --data_dir, by default to where mnist_main looks for it. Files that "
          "are there already are kept, and an interrupted download resumes where it stopped.",
      .examples = {{"download_mnist_main data", "then train with: mnist_main --data_dir=data"},
                   {"download_mnist_main data --from_dir=usb",
                    "take copies of the published files, without a network"}},
      .defaults = {{"data_dir", files::DefaultDataDir("mnist_data")}},
      .flags = {.name = "download_mnist",
                .flags = {flags::DataDirFlag("mnist_main"),
                          flags::FromDirFlag("train-images-idx3-ubyte.gz and the three others"), flags::OutputFlag(),
                          flags::LogFormatFlag()}},
      .words = kWords,
      .shared_flags = false,
  };
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::CheckNumWords(command_line, kWords, 0, 1));
  MnistOptions options;
  ASSIGN_OR_RETURN(options.data_dir, flags::DataDir(command_line));
  options.from_dir = flags::FromDir();
  RETURN_IF_ERROR(flags::StartLog());
  RETURN_IF_ERROR(DownloadMnist(options));
  LOG(INFO) << "MNIST is in " << options.data_dir;
  if (flags::WantsJson()) {
    flags::PrintJson({{"event", "end"}, {"dataset", "MNIST"}, {"data_dir", options.data_dir}}, std::cout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::mnist

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::mnist::DownloadProgram(), official::mnist::Main);
}
