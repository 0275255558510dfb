#include "utils/distribute/cluster/hostlist.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"
#include "utils/misc/text.h"

namespace official::distribute {
namespace {

constexpr size_t kMaxWords = 8192;
constexpr size_t kMaxDigits = 9;

absl::Status Refused(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", misc::Printable(text), "' ", why));
}

// Reads a number of at most 9 digits, without a sign.
bool ReadNumber(absl::string_view digits, int* number) {
  return !digits.empty() && digits.size() <= kMaxDigits &&
         std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) && absl::SimpleAtoi(digits, number);
}

// The numbers between brackets: "08-10,12".
absl::StatusOr<std::vector<std::string>> ExpandRanges(absl::string_view ranges) {
  std::vector<std::string> numbers;
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !ReadNumber(ends.front(), &first) || !ReadNumber(ends.back(), &last) || first > last) {
      return Refused(range, "is no range; write one such as [0-3] or [0,2]");
    }
    if (numbers.size() + (last - first) >= kMaxWords) return Refused(range, "is too long a range");
    for (int number = first; number <= last; ++number) {
      numbers.push_back(absl::StrFormat("%0*d", static_cast<int>(ends.front().size()), number));
    }
  }
  return numbers;
}

// The place of the comma or the end behind the first word of a list; commas in brackets are part of a word.
size_t WordEnd(absl::string_view list) {
  bool inside = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[' || list[i] == ']') inside = list[i] == '[';
    if (list[i] == ',' && !inside) return i;
  }
  return list.size();
}

// Appends `parts`, all ways to continue, to all `words`.
absl::Status Multiply(const std::vector<std::string>& parts, std::vector<std::string>* words) {
  if (words->size() * parts.size() > kMaxWords)
    return Refused(words->front(), "and its ranges stand for too many hosts");
  std::vector<std::string> product;
  product.reserve(words->size() * parts.size());
  for (const std::string& word : *words) {
    for (const std::string& part : parts) product.push_back(word + part);
  }
  words->swap(product);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ExpandWord(absl::string_view word) {
  if (word.empty()) return Refused(word, "is an empty name");
  std::vector<std::string> words = {""};
  absl::string_view rest = word;
  while (!rest.empty()) {
    const size_t open = std::min(rest.find('['), rest.size());
    RETURN_IF_ERROR(Multiply({std::string(rest.substr(0, open))}, &words));
    rest.remove_prefix(open);
    if (rest.empty()) break;
    const size_t close = rest.find(']');
    if (close == absl::string_view::npos) return Refused(word, "has a bracket that is not closed");
    const absl::string_view ranges = rest.substr(1, close - 1);
    std::vector<std::string> parts = {std::string(rest.substr(0, close + 1))};
    if (ranges.find(':') == absl::string_view::npos) {
      ASSIGN_OR_RETURN(parts, ExpandRanges(ranges));
    }
    RETURN_IF_ERROR(Multiply(parts, &words));
    rest.remove_prefix(close + 1);
  }
  return words;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostlist(absl::string_view list) {
  std::vector<std::string> all;
  for (absl::string_view rest = list;;) {
    const size_t end = WordEnd(rest);
    ASSIGN_OR_RETURN(const std::vector<std::string> words, ExpandWord(rest.substr(0, end)));
    all.insert(all.end(), words.begin(), words.end());
    if (all.size() > kMaxWords) return Refused(list, "stands for too many hosts");
    if (end == rest.size()) return all;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace official::distribute
