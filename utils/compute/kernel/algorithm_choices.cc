#include "utils/compute/kernel/algorithm_choices.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"

namespace official::compute {
namespace {

constexpr absl::string_view kHeader =
    "# Algorithms that were chosen by timing them; a resumed run uses the same ones.\n";

}  // namespace

absl::StatusOr<std::string> AlgorithmChoices::FindOrChoose(const std::string& key,
                                                           absl::FunctionRef<absl::StatusOr<std::string>()> choose) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = choices_.find(key); it != choices_.end()) return it->second;
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(std::string choice, choose());
  OFFICIAL_CHECK((key + choice).find_first_of("\t\n") == std::string::npos) << key << " " << choice;
  ++new_.count;
  new_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return choices_[key] = std::move(choice);
}

void AlgorithmChoices::Forget(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  choices_.erase(key);
}

absl::Status AlgorithmChoices::Parse(absl::string_view text) {
  std::vector<std::pair<std::string, std::string>> found;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> parts = absl::StrSplit(line, '\t');
    if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " is not a key, a tab and a choice: '", line.substr(0, 80), "'"));
    }
    found.emplace_back(parts[0], parts[1]);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [key, choice] : found) choices_[std::move(key)] = std::move(choice);
  return absl::OkStatus();
}

std::string AlgorithmChoices::ToText() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text(kHeader);
  for (const auto& [key, choice] : choices_) absl::StrAppend(&text, key, "\t", choice, "\n");
  return text;
}

AlgorithmChoices::NewChoices AlgorithmChoices::TakeNew() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(new_, {});
}

}  // namespace official::compute
