#include "utils/flags/num_words.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/misc/text.h"

namespace official::flags {

absl::Status CheckNumWords(const CommandLine& command_line, absl::string_view usage, size_t min, size_t max) {
  const std::vector<std::string>& words = command_line.words();
  if (words.size() >= min && words.size() <= max) return absl::OkStatus();
  const std::string found =
      absl::StrCat(words.size() == 1 ? "here is 1 word" : absl::StrCat("here are ", words.size(), " words"),
                   words.empty() ? "" : ": ", misc::Printable(absl::StrJoin(words, " ")));
  return absl::InvalidArgumentError(absl::StrCat("write: ", command_line.program(), " ", usage, "; ", found));
}

}  // namespace official::flags
