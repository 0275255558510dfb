// The input is a command line, one word a line, and then a file of flags.
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/check.h"
#include "utils/flags/command_line.h"
#include "utils/fuzzing/memory_file.h"

namespace {

void Parse(const std::vector<std::string>& words) {
  using official::flags::CommandLine;
  const official::flags::Program program = {.name = "fuzz_main",
                                            .description = "Parses.",
                                            .examples = {},
                                            .defaults = {{"batch_size", "100"}},
                                            .flags = {.name = "fuzz", .flags = {}},
                                            .words = "WORD..."};
  const auto parsed = CommandLine::Parse(program, words);
  OFFICIAL_CHECK(parsed.ok() || absl::IsInvalidArgument(parsed.status())) << parsed.status();
  OFFICIAL_CHECK(!absl::StrContains(parsed.status().message(), '\n')) << parsed.status();
  if (!parsed.ok() || parsed->request() != CommandLine::Request::kRun) return;
  // What a run says of its flags gives the same run again.
  const std::string text = parsed->AllFlagsText();
  const official::fuzzing::MemoryFile file(text);
  const auto again = CommandLine::Parse(program, {"--flagfile=" + file.path()});
  OFFICIAL_CHECK(again.ok()) << again.status() << "\n" << text;
  OFFICIAL_CHECK(again->AllFlagsText() == text) << text << again->AllFlagsText();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text = official::fuzzing::AsBytes(data, size);
  // Other files than the input are not the parser's: a pipe, say, would be waited for.
  if (absl::StrContains(text, "flagfile")) return 0;
  Parse(absl::StrSplit(text, '\n'));
  const official::fuzzing::MemoryFile file(text);
  Parse({"--flagfile=" + file.path()});
  return 0;
}
