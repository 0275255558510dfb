#include "utils/flags/flag_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "utils/misc/text.h"

namespace official::flags {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

absl::Status Unreadable(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("flag --flagfile=", misc::Printable(path), ": ", why));
}

}  // namespace

absl::StatusOr<std::vector<FlagFileLine>> ReadFlagFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Unreadable(path, "that is a directory, not a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return Unreadable(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
  std::string content(kMaxBytes + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (file.bad()) return Unreadable(path, absl::StrCat("cannot be read: ", std::strerror(errno)));
  content.resize(static_cast<size_t>(file.gcount()));
  if (content.size() > kMaxBytes) return Unreadable(path, "larger than 1 MiB, so not a file of flags");
  if (absl::StrContains(content, absl::string_view("\0", 1))) return Unreadable(path, "binary, so not a file of flags");

  std::vector<FlagFileLine> lines;
  int number = 0;
  absl::string_view text = content;
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");  // the byte order mark of UTF-8, which some editors write
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "#") || absl::StartsWith(line, "//")) continue;
    const std::string where = absl::StrCat(misc::Printable(path), ":", number);
    if (line[0] != '-') {
      return absl::InvalidArgumentError(absl::StrCat(where, ": '", misc::Printable(line),
                                                     "' is not a flag; a line is --name=value, or begins with #"));
    }
    const size_t name_end = line.find_first_of("= \t");
    if (name_end != line.npos && line[name_end] != '=') {
      absl::string_view value = absl::StripLeadingAsciiWhitespace(line.substr(name_end));
      absl::ConsumePrefix(&value, "=");
      return absl::InvalidArgumentError(absl::StrCat(where, ": '", misc::Printable(line),
                                                     "' needs = between name and value; did you mean ",
                                                     misc::Printable(line.substr(0, name_end)), "=",
                                                     misc::Printable(absl::StripLeadingAsciiWhitespace(value)), "?"));
    }
    lines.push_back({std::string(line), where});
  }
  return lines;
}

}  // namespace official::flags
