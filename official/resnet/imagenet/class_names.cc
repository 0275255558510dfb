#include "official/resnet/imagenet/class_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/misc/run_files.h"

namespace official::resnet {
namespace {

constexpr int64_t kMaxBytes = 64 << 20;

}  // namespace

absl::StatusOr<ClassNames> ReadClassNames(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(path, kMaxBytes));
  ClassNames names = absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  for (std::string& name : names) absl::StripAsciiWhitespace(&name);
  // A blank line at the end, which an editor may have left there, would be one more class.
  const size_t num_lines = names.size();
  while (!names.empty() && names.back().empty()) names.pop_back();
  if (names.empty()) {
    return absl::DataLossError(absl::StrCat(path, " has no names: expected the name of a class on each line"));
  }
  if (names.size() < num_lines) {
    LOG(WARNING) << path << ": blank lines at the end, which name no class: " << num_lines - names.size();
  }
  return names;
}

absl::StatusOr<ClassNames> FindClassNames(const std::string& directory) {
  absl::StatusOr<ClassNames> names = ReadClassNames(files::JoinPath(directory, misc::kClassNamesFile));
  if (absl::IsNotFound(names.status())) return ClassNames();
  return names;
}

std::string ClassNamesText(const ClassNames& names) { return absl::StrCat(absl::StrJoin(names, "\n"), "\n"); }

absl::Status WriteClassNames(const std::string& directory, const ClassNames& names) {
  return files::WriteFileAtomically(files::JoinPath(directory, misc::kClassNamesFile), ClassNamesText(names));
}

absl::Status CheckSameClasses(const ClassNames& a, const std::string& a_file, const ClassNames& b,
                              const std::string& b_file) {
  if (a == b) return absl::OkStatus();
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto named = [](const ClassNames& names, ClassNames::const_iterator it) {
    return it == names.end() ? "does not have it" : absl::StrCat("names it \"", *it, "\"");
  };
  return absl::InvalidArgumentError(absl::StrFormat("class %d differs: %s %s, %s %s", in_a - a.begin(), a_file,
                                                    named(a, in_a), b_file, named(b, in_b)));
}

}  // namespace official::resnet
