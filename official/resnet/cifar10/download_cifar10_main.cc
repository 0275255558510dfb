// download_cifar10_main [DIRECTORY [ARCHIVE]]: puts the files of CIFAR-10 where resnet_main reads them.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "official/resnet/cifar10/download.h"
#include "utils/files/files.h"
#include "utils/files/user_dirs.h"
#include "utils/logs/log.h"
#include "utils/logs/output_style.h"
#include "utils/misc/exit_code.h"

int main(int argc, char** argv) {
  namespace logs = official::logs;
  namespace files = official::files;
  std::string data_dir = files::DefaultDataDir("cifar10_data");
  if (argc > 3 || (argc >= 2 && absl::StartsWith(argv[1], "-"))) {
    std::fprintf(stderr,
                 "usage: download_cifar10_main [DIRECTORY [ARCHIVE]]; default %s; with ARCHIVE, a copy of "
                 "cifar-10-binary.tar.gz, nothing is downloaded\n",
                 data_dir.c_str());
    return official::misc::kExitBadFlags;
  }
  if (argc >= 2) data_dir = argv[1];
  official::resnet::Cifar10Source source;
  if (argc == 3) source.archive = argv[2];
  logs::InitLogging(logs::ResolveOutputStyle(logs::LogFormat::kAuto, logs::ColorMode::kAuto, isatty(STDERR_FILENO) != 0,
                                             [](const char* name) { return std::getenv(name); }));
  absl::Status status = argc >= 2 ? absl::OkStatus() : files::CheckOwner(data_dir);
  if (status.ok()) status = official::resnet::DownloadCifar10(data_dir, source);
  if (status.ok()) {
    LOG(INFO) << "CIFAR-10 is in " << data_dir;
  } else {
    LOG(ERROR) << std::string(status.message());
  }
  return official::misc::ExitCode(status);
}
