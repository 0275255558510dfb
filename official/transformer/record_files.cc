#include "official/transformer/record_files.h"

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/data/numbered_files.h"

namespace official::transformer {

absl::StatusOr<std::vector<std::string>> FindRecordFiles(const std::string& data_dir, absl::string_view tag) {
  ASSIGN_OR_RETURN(std::vector<std::string> paths, data::FindNumberedFiles(data_dir, /*max_begin=*/1, [&](auto set) {
                     return absl::StrContains(set, tag);
                   }));
  if (!paths.empty()) return paths;
  return absl::NotFoundError(absl::StrFormat(
      "%s has no files *%s*-of-*; write them with prepare_data_main, name their directory with --data_dir, or train "
      "without data with --use_synthetic_data",
      data_dir, tag));
}

}  // namespace official::transformer
