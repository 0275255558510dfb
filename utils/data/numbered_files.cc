#include "utils/data/numbered_files.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::data {
namespace {

struct NumberedFile {
  absl::string_view set;  // the name without the number
  int number = 0;
  int of = 0;
};

// Nothing if the name is none of a numbered file.
std::optional<NumberedFile> ParseName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  if (parts.size() < 4) return std::nullopt;
  const absl::string_view number = parts[parts.size() - 3];
  NumberedFile file = {.set = name.substr(0, number.data() - name.data() - 1)};
  if (!absl::SimpleAtoi(number, &file.number) || !absl::SimpleAtoi(parts.back(), &file.of) ||
      NumberedName(file.set, file.number, file.of) != name) {
    return std::nullopt;
  }
  return file;
}

}  // namespace

std::string NumberedName(absl::string_view set, int number, int of) {
  return absl::StrFormat("%s-%05d-of-%05d", set, number, of);
}

absl::StatusOr<std::vector<std::string>> FindNumberedFiles(const std::string& directory, int max_begin,
                                                           absl::FunctionRef<bool(absl::string_view set)> is_wanted) {
  const absl::StatusOr<std::vector<std::string>> names = files::ListDirectory(directory);
  if (absl::IsNotFound(names.status())) return std::vector<std::string>();
  RETURN_IF_ERROR(names.status());
  std::optional<NumberedFile> first;
  const auto name_of = [&](int number) { return NumberedName(first->set, number, first->of); };
  std::vector<int> numbers;
  for (const std::string& name : *names) {
    const std::optional<NumberedFile> file = ParseName(name);
    if (!file.has_value() || !is_wanted(file->set)) continue;
    if (!first.has_value()) first = file;
    if (file->set != first->set || file->of != first->of) {
      return absl::DataLossError(absl::StrFormat("%s holds two data sets, %s and %s; move one of them away", directory,
                                                 name_of(numbers.back()), name));
    }
    numbers.push_back(file->number);
  }
  if (numbers.empty()) return std::vector<std::string>();
  std::sort(numbers.begin(), numbers.end());  // more than five digits are not in the order of the names
  const int begin = std::min(numbers[0], max_begin);
  const int num_of_set = static_cast<int>(
      std::count_if(numbers.begin(), numbers.end(), [&](int number) { return number - begin < first->of; }));
  int i = 0;
  while (i < num_of_set && numbers[i] == begin + i) ++i;
  if (i < first->of) {
    return absl::DataLossError(absl::StrFormat("%s is missing %s: it has %d of %d files", directory, name_of(begin + i),
                                               num_of_set, first->of));
  }
  if (static_cast<int>(numbers.size()) > first->of) {
    return absl::DataLossError(absl::StrFormat("%s holds %s in addition to the %d files that its name counts",
                                               directory, name_of(numbers[first->of]), first->of));
  }
  std::vector<std::string> paths;
  for (const int number : numbers) paths.push_back(files::JoinPath(directory, name_of(number)));
  return paths;
}

}  // namespace official::data
