// download_mnist_main [DIRECTORY]: puts the files of MNIST there, as mnist_main does when they are missing.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "official/mnist/dataset.h"
#include "utils/files/files.h"
#include "utils/files/user_dirs.h"
#include "utils/logs/log.h"
#include "utils/logs/output_style.h"
#include "utils/misc/exit_code.h"

int main(int argc, char** argv) {
  namespace logs = official::logs;
  namespace files = official::files;
  official::mnist::MnistOptions options;
  options.data_dir = files::DefaultDataDir("mnist_data");
  if (argc > 2 || (argc == 2 && absl::StartsWith(argv[1], "-"))) {
    std::fprintf(stderr, "usage: download_mnist_main [DIRECTORY]; default %s\n", options.data_dir.c_str());
    return official::misc::kExitBadFlags;
  }
  if (argc == 2) options.data_dir = argv[1];
  logs::InitLogging(logs::ResolveOutputStyle(logs::LogFormat::kAuto, logs::ColorMode::kAuto, isatty(STDERR_FILENO) != 0,
                                             [](const char* name) { return std::getenv(name); }));
  absl::Status status = argc == 2 ? absl::OkStatus() : files::CheckOwner(options.data_dir);
  if (status.ok()) status = official::mnist::DownloadMnist(options);
  if (status.ok()) {
    LOG(INFO) << "MNIST is in " << options.data_dir;
  } else {
    LOG(ERROR) << std::string(status.message());
  }
  return official::misc::ExitCode(status);
}
