#include "utils/flags/num_words.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/misc/text.h"

namespace official::flags {

absl::Status CheckNumWords(const CommandLine& command_line, absl::string_view usage, size_t min, size_t max) {
  return CheckNumWords(command_line.words(), command_line.program(), usage, min, max);
}

absl::Status CheckNumWords(const std::vector<std::string>& words, absl::string_view command, absl::string_view usage,
                           size_t min, size_t max) {
  if (words.size() >= min && words.size() <= max) return absl::OkStatus();
  const std::string found =
      absl::StrCat(words.size() == 1 ? "here is 1 word" : absl::StrCat("here are ", words.size(), " words"),
                   words.empty() ? "" : ": ", misc::Printable(absl::StrJoin(words, " ")));
  return absl::InvalidArgumentError(absl::StrCat("write: ", command, " ", usage, "; ", found));
}

}  // namespace official::flags
