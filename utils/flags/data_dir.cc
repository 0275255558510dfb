#include "utils/flags/data_dir.h"

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/misc/text.h"

ABSL_DECLARE_FLAG(std::string, data_dir);
ABSL_FLAG(std::string, from_dir, "", "Directory with copies of the published files.");

namespace official::flags {

FlagSpec DataDirFlag(absl::string_view reader) {
  return {.name = "data_dir",
          .short_name = "dd",
          .key = true,
          .required = true,
          .help = absl::StrCat("Directory to write to: the --data_dir of ", reader, ".")};
}

absl::StatusOr<std::string> DataDir(const CommandLine& command_line) {
  const bool given = command_line.given("data_dir");
  if (!command_line.words().empty()) {
    const std::string& word = command_line.words()[0];
    if (!given) return word;
    return FlagError("data_dir", absl::StrCat("cannot be combined with the directory ", misc::Printable(word),
                                              "; leave out one of them"));
  }
  const std::string directory = absl::GetFlag(FLAGS_data_dir);
  if (!given) RETURN_IF_ERROR(files::CheckOwner(directory));
  return directory;
}

FlagSpec FromDirFlag(const std::string& files) {
  return {.name = "from_dir",
          .key = true,
          .help = absl::StrCat("Directory with copies of ", files,
                               ", as they are published: nothing is downloaded, and copies that are not the published "
                               "files are refused.")};
}

std::string FromDir() { return absl::GetFlag(FLAGS_from_dir); }

}  // namespace official::flags
