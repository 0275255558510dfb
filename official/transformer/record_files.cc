#include "official/transformer/record_files.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::transformer {
namespace {

struct RecordFile {
  absl::string_view set;  // the name without the number
  int number;
  int of;
};

std::string Name(absl::string_view set, int number, int of) {
  return absl::StrFormat("%s-%05d-of-%05d", set, number, of);
}

// Nothing if the name is none of a numbered file.
std::optional<RecordFile> ParseName(absl::string_view name) {
  constexpr size_t kSuffixBytes = 15;  // -NNNNN-of-MMMMM
  if (name.size() <= kSuffixBytes) return std::nullopt;
  RecordFile file = {.set = name.substr(0, name.size() - kSuffixBytes), .number = 0, .of = 0};
  const absl::string_view suffix = name.substr(file.set.size());
  if (!absl::SimpleAtoi(suffix.substr(1, 5), &file.number) || !absl::SimpleAtoi(suffix.substr(10), &file.of) ||
      Name(file.set, file.number, file.of) != name) {
    return std::nullopt;
  }
  return file;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindRecordFiles(const std::string& data_dir, absl::string_view tag) {
  absl::StatusOr<std::vector<std::string>> names = files::ListDirectory(data_dir);  // sorted
  if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
  std::vector<std::string> found;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    const std::optional<RecordFile> file = ParseName(name);
    if (!file.has_value() || !absl::StrContains(file->set, tag)) continue;
    if (!found.empty()) {
      const RecordFile before = *ParseName(found.back());
      if (before.set != file->set || before.of != file->of) {
        return absl::DataLossError(
            absl::StrFormat("%s holds two data sets, %s and %s; move one of them away", data_dir, found.back(), name));
      }
    }
    found.push_back(name);
  }
  if (found.empty()) {
    return absl::NotFoundError(absl::StrFormat(
        "%s has no files *%s*-of-*; write them with prepare_data_main, name their directory with --data_dir, or train "
        "without data with --use_synthetic_data",
        data_dir, tag));
  }
  const RecordFile first = *ParseName(found[0]);
  const int begin = first.number == 0 ? 0 : 1;
  for (int i = 0; i < first.of; ++i) {
    const std::string expected = Name(first.set, begin + i, first.of);
    if (i < static_cast<int>(found.size()) && found[i] == expected) continue;
    return absl::DataLossError(
        absl::StrFormat("%s is missing %s: it has %d of %d files", data_dir, expected, found.size(), first.of));
  }
  if (static_cast<int>(found.size()) > first.of) {
    return absl::DataLossError(absl::StrFormat("%s holds %s in addition to the %d files that its name counts", data_dir,
                                               found[first.of], first.of));
  }
  for (std::string& name : found) name = files::JoinPath(data_dir, name);
  return found;
}

}  // namespace official::transformer
