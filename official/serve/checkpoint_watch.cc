#include "official/serve/checkpoint_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/misc/run_files.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::serve {
namespace {

constexpr int64_t kMaxLooksBetween = 64;

}  // namespace

std::optional<LatestFiles> FindLatestFiles(const std::string& model_dir) {
  const std::optional<std::string> name = train::LatestCheckpointName(model_dir);
  if (!name) return std::nullopt;
  LatestFiles latest{*name, ""};
  const absl::StatusOr<std::vector<std::string>> files = files::ListDirectory(model_dir);
  if (!files.ok()) return latest;
  for (const std::string& file : *files) {
    struct stat found;
    const bool belongs =
        file == absl::StrCat(*name, misc::kIndexSuffix) || absl::StartsWith(file, absl::StrCat(*name, ".data-"));
    if (!belongs || stat(files::JoinPath(model_dir, file).c_str(), &found) != 0) continue;
    absl::StrAppend(&latest.state, found.st_ino, " ", found.st_size, " ", found.st_mtim.tv_sec, ".",
                    found.st_mtim.tv_nsec, "\n");
  }
  return latest;
}

bool CheckpointWatch::IsDue(const std::optional<LatestFiles>& found) {
  const bool is_at_rest = found == std::exchange(found_, found);
  if (!found || found == served_) return false;
  if (!failed_ || failed_->name != found->name) return true;
  if (found != failed_ && is_at_rest) {
    looks_between_ = 0;
    return true;
  }
  return --looks_left_ <= 0;
}

void CheckpointWatch::Served() {
  served_ = found_;
  failed_.reset();
}

bool CheckpointWatch::Failed() {
  const bool is_first = !failed_ || failed_->name != found_->name;
  looks_between_ = is_first || looks_between_ == 0 ? 1 : std::min(2 * looks_between_, kMaxLooksBetween);
  looks_left_ = looks_between_;
  failed_ = found_;
  return is_first;
}

}  // namespace official::serve
