#include "utils/flags/from_dir.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(std::string, from_dir, "", "Directory with copies of the published files.");

namespace official::flags {

FlagSpec FromDirFlag(const std::string& files) {
  return {.name = "from_dir",
          .key = true,
          .help = absl::StrCat("Directory with copies of ", files,
                               ", as they are published: nothing is downloaded, and copies that are not the published "
                               "files are refused.")};
}

std::string FromDir() { return absl::GetFlag(FLAGS_from_dir); }

}  // namespace official::flags
