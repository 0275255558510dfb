// download_mnist_main [DIRECTORY]: puts the files of MNIST there, as mnist_main does when they are missing.
#include <iostream>

#include "official/mnist/dataset.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/console.h"
#include "utils/flags/from_dir.h"
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
          "Downloads MNIST (12 MB) to DIRECTORY, by default " + files::DefaultDataDir("mnist_data") +
          ", where mnist_main looks for it. Files that are there already are kept, and an interrupted download "
          "resumes where it stopped.",
      .examples = {{"download_mnist_main data", "then train with: mnist_main --data_dir=data"},
                   {"download_mnist_main data --from_dir=usb",
                    "take copies of the published files, without a network"}},
      .flags = {.name = "download_mnist",
                .flags = {flags::FromDirFlag("train-images-idx3-ubyte.gz and the three others"), flags::OutputFlag(),
                          flags::LogFormatFlag()}},
      .words = kWords,
      .shared_flags = false,
  };
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::CheckNumWords(command_line, kWords, 0, 1));
  MnistOptions options;
  options.data_dir = command_line.words().empty() ? files::DefaultDataDir("mnist_data") : command_line.words()[0];
  options.from_dir = flags::FromDir();
  RETURN_IF_ERROR(flags::StartLog());
  if (command_line.words().empty()) RETURN_IF_ERROR(files::CheckOwner(options.data_dir));
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
