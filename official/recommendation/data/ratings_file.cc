#include "official/recommendation/data/ratings_file.h"

#include <zip.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::recommendation {
namespace {

constexpr size_t kMaxLineBytes = 1024;
constexpr size_t kBufferBytes = 1 << 16;
constexpr uint64_t kMaxMemberBytes = uint64_t{4} << 30;

template <typename T>
bool ParseNumber(absl::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool IsNumber(absl::string_view text) {
  double value;
  return ParseNumber(text, value) && std::isfinite(value);
}

// As much of what stands in a file as fits in a message.
std::string Quoted(absl::string_view text) {
  constexpr size_t kShown = 60;
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text.substr(0, kShown)), text.size() > kShown ? "..." : "", "\"");
}

// Takes 1 to `max_digits` digits, at most 19, off the text, which has something else behind them. Null if there are
// none or more.
const char* TakeNumber(const char* text, int max_digits, uint64_t& value) {
  const char* const begin = text;
  value = 0;
  for (unsigned digit; (digit = static_cast<unsigned char>(*text) - '0') < 10; ++text) value = value * 10 + digit;
  return text > begin && text - begin <= max_digits ? text : nullptr;
}

constexpr size_t kNumFields = 4;

// Splits at most kNumFields fields off a line; how many there are, or one more if there are too many.
size_t SplitLine(absl::string_view line, absl::string_view separator,
                 std::array<absl::string_view, kNumFields>& fields) {
  for (size_t i = 0; i < kNumFields; ++i) {
    const size_t end = separator.size() == 1 ? line.find(separator[0]) : line.find(separator);
    fields[i] = line.substr(0, end);
    if (end == absl::string_view::npos) return i + 1;
    line.remove_prefix(end + separator.size());
  }
  return kNumFields + 1;
}

// What separates the fields of a file, by its first line: the first of these that makes four fields of it. A header may
// have blanks in its names, so the blank comes last. Empty if none does.
absl::string_view FindSeparator(absl::string_view first_line) {
  std::array<absl::string_view, kNumFields> fields;
  for (const absl::string_view separator : {"::", "\t", ",", ";", " "}) {
    if (SplitLine(first_line, separator, fields) == kNumFields) return separator;
  }
  return "";
}

// As it is called in messages.
absl::string_view NameOf(absl::string_view separator) {
  if (separator == "\t") return "a tab";
  return separator == " " ? "a space" : separator;
}

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  // Whole lines, each with its end.
  absl::Status AddLines(absl::string_view lines) {
    const char *line = lines.data(), *const end = line + lines.size();
    while (line < end) {
      if (const char* const next = AddPlainLine(line); next != nullptr) {
        line = next;
        continue;
      }
      const auto* const line_end = static_cast<const char*>(std::memchr(line, '\n', end - line));
      if (line_end - line > static_cast<int64_t>(kMaxLineBytes)) return LineTooLong();
      RETURN_IF_ERROR(AddLine(absl::string_view(line, line_end - line)));
      line = line_end + 1;
    }
    return absl::OkStatus();
  }

  // What is behind the last line end.
  absl::Status AddLastLine(absl::string_view line) {
    const absl::Status status = AddLine(line);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(status.message(), ", where the file ends"));
    LOG(WARNING) << name_ << " ends without a line end: it may have been cut in line " << line_number_;
    return status;
  }

  absl::Status LineTooLong() {
    ++line_number_;
    return Error(absl::StrFormat("has more than %d characters: is this a ratings file?", kMaxLineBytes));
  }

  absl::StatusOr<std::vector<Rating>> Finish() {
    if (ratings_.empty()) return absl::DataLossError(absl::StrCat(name_, " has no ratings"));
    return std::move(ratings_);
  }

  // Makes room for as many ratings as `num_bytes` will hold, if they are like the first `num_read`.
  void Reserve(int64_t num_bytes, int64_t num_read) {
    ratings_.reserve(static_cast<size_t>(1.01 * static_cast<double>(ratings_.size()) * num_bytes / num_read));
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrFormat("%s line %d: %s", name_, line_number_, what));
  }

  // Adds a line of four numbers without signs and exponents, as nearly all are, and returns where the next one begins;
  // null, and nothing is added, if the line is not of that kind or the first. There is a line end behind.
  const char* AddPlainLine(const char* line) {
    constexpr int kIdDigits = 10, kRatingDigits = 9, kTimestampDigits = 18;
    uint64_t user, item, rating, timestamp;
    line = TakeSeparator(TakeNumber(line, kIdDigits, user));
    if (line == nullptr || (line = TakeSeparator(TakeNumber(line, kIdDigits, item))) == nullptr) return nullptr;
    line = TakeNumber(line, kRatingDigits, rating);
    if (line != nullptr && *line == '.') line = TakeNumber(line + 1, kRatingDigits, rating);
    if ((line = TakeSeparator(line)) == nullptr) return nullptr;
    if ((line = TakeNumber(line, kTimestampDigits, timestamp)) == nullptr) return nullptr;
    line += *line == '\r';
    if (*line != '\n' || !IsId(user) || !IsId(item)) return nullptr;
    ratings_.push_back({static_cast<int32_t>(user), static_cast<int32_t>(item), static_cast<int64_t>(timestamp)});
    ++line_number_;
    return line + 1;
  }

  const char* TakeSeparator(const char* text) const {
    if (text == nullptr) return nullptr;
    for (const char c : separator_) {
      if (*text++ != c) return nullptr;
    }
    return separator_.empty() ? nullptr : text;
  }

  static bool IsId(uint64_t id) { return id >= 1 && id <= std::numeric_limits<int32_t>::max(); }

  absl::Status AddLine(absl::string_view line) {
    ++line_number_;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (separator_.empty() && (separator_ = FindSeparator(line)).empty()) {
      return Error(
          absl::StrFormat("expected four fields, user, item, rating and timestamp, with a tab, a comma, ::, a "
                          "semicolon or a space between them, found %s",
                          Found(line)));
    }
    std::array<absl::string_view, kNumFields> fields;
    if (SplitLine(line, separator_, fields) != kNumFields) {
      return Error(
          absl::StrFormat("expected user, item, rating and timestamp, with %s between them as in line 1, found "
                          "%s",
                          NameOf(separator_), Found(line)));
    }
    if (IsHeader(fields)) {
      if (line_number_ == 1) return absl::OkStatus();
      return Error(absl::StrCat("expected numbers, found ", Quoted(line), ": only the first line may be a header"));
    }
    Rating rating;
    RETURN_IF_ERROR(ParseId("user", fields[0], rating.user));
    RETURN_IF_ERROR(ParseId("item", fields[1], rating.item));
    if (!IsNumber(fields[2])) return Error(absl::StrCat("rating ", Quoted(fields[2]), " is not a number"));
    if (!ParseNumber(fields[3], rating.timestamp)) {
      return Error(absl::StrCat("timestamp ", Quoted(fields[3]), " is not a whole number of seconds"));
    }
    ratings_.push_back(rating);
    return absl::OkStatus();
  }

  static std::string Found(absl::string_view line) { return line.empty() ? "an empty line" : Quoted(line); }

  static bool IsHeader(const std::array<absl::string_view, kNumFields>& fields) {
    for (const absl::string_view field : fields) {
      if (IsNumber(field)) return false;
    }
    return true;
  }

  absl::Status ParseId(absl::string_view what, absl::string_view text, int32_t& id) const {
    if (ParseNumber(text, id) && id >= 1) return absl::OkStatus();
    return Error(absl::StrFormat("%s %s is not in 1 to %d: number %ss from 1 on", what, Quoted(text),
                                 std::numeric_limits<int32_t>::max(), what));
  }

  const std::string& name_;
  absl::string_view separator_;  // told by the first line
  int64_t line_number_ = 0;
  std::vector<Rating> ratings_;
};

struct ZipCloser {
  void operator()(zip_t* zip) const { zip_discard(zip); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

// Whether a path stays within the directory that it is relative to.
bool StaysInside(absl::string_view path) {
  return !absl::StartsWith(path, "/") && !absl::StrContains(absl::StrCat("/", path, "/"), "/../") &&
         !absl::StrContains(path, '\\');
}

absl::StatusOr<std::vector<Rating>> ReadZip(const std::string& path) {
  // For its errors.
  RETURN_IF_ERROR(files::RandomAccessFile::Open(path).status());
  int code = 0;
  const std::unique_ptr<zip_t, ZipCloser> zip(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (zip == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    return absl::DataLossError(
        absl::StrFormat("%s is not a readable zip archive: %s%s", path, reason, data::KindNoteOfFile(path)));
  }
  std::optional<zip_uint64_t> found;
  std::string name;
  for (zip_int64_t i = 0; i < zip_get_num_entries(zip.get(), 0); ++i) {
    const char* const entry = zip_get_name(zip.get(), i, 0);
    if (entry == nullptr) return absl::DataLossError(absl::StrFormat("%s: member %d has no name", path, i));
    if (!StaysInside(entry)) {
      return absl::DataLossError(absl::StrFormat("%s has a member that lies outside of it: %s", path, Quoted(entry)));
    }
    const absl::string_view base = absl::string_view(entry).substr(absl::string_view(entry).rfind('/') + 1);
    if (base != "ratings.csv" && base != "ratings.dat" && base != "u.data") continue;
    if (found) return absl::DataLossError(absl::StrFormat("%s has two ratings files: %s and %s", path, name, entry));
    found = i;
    name = entry;
  }
  if (!found) return absl::DataLossError(absl::StrCat(path, " has no ratings.csv, no ratings.dat and no u.data"));
  const std::string shown = absl::StrCat(path, "/", name);
  zip_stat_t stat;
  if (zip_stat_index(zip.get(), *found, 0, &stat) != 0 || !(stat.valid & ZIP_STAT_SIZE)) {
    return absl::DataLossError(absl::StrFormat("%s: %s", shown, zip_strerror(zip.get())));
  }
  if (stat.size > kMaxMemberBytes) {
    return absl::DataLossError(
        absl::StrFormat("%s has %d bytes, at most %d can be read", shown, stat.size, kMaxMemberBytes));
  }
  const std::unique_ptr<zip_file_t, ZipCloser> file(zip_fopen_index(zip.get(), *found, 0));
  if (file == nullptr) return absl::DataLossError(absl::StrFormat("%s: %s", shown, zip_strerror(zip.get())));
  return ParseRatings(shown, [&](char* buffer, int64_t size) -> absl::StatusOr<int64_t> {
    const int64_t got = zip_fread(file.get(), buffer, size);
    if (got >= 0) return got;
    return absl::DataLossError(absl::StrFormat("%s: %s", shown, zip_file_strerror(file.get())));
  });
}

}  // namespace

absl::StatusOr<std::vector<Rating>> ReadRatings(const std::string& path) {
  const absl::string_view kind = data::KindOfFile(path);
  if (absl::EndsWith(path, ".zip") || kind == "a zip archive") return ReadZip(path);
  if (!kind.empty()) return absl::DataLossError(absl::StrCat(path, " has no ratings: the file is ", kind));
  ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(path));
  int64_t offset = 0;
  const auto read = [&](char* buffer, int64_t size) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const int64_t got, file->ReadSome(offset, size, buffer));
    offset += got;
    return got;
  };
  return ParseRatings(path, read, file->size());
}

absl::StatusOr<std::vector<Rating>> ParseRatings(const std::string& name, ReadFn read, int64_t num_bytes) {
  logs::TaskProgress progress(
      {.title = absl::StrCat("reading ", name.substr(name.rfind('/') + 1)), .total = num_bytes, .unit = "B"});
  Parser parser(name);
  std::vector<char> buffer(kMaxLineBytes + kBufferBytes);
  size_t kept = 0;  // bytes at the front of the buffer, of a line that is not yet complete
  for (bool first = true;; first = false) {
    ASSIGN_OR_RETURN(const int64_t got, read(buffer.data() + kept, kBufferBytes));
    progress.Add(got);
    const absl::string_view text(buffer.data(), kept + got);
    if (got == 0) {
      if (kept > 0) RETURN_IF_ERROR(parser.AddLastLine(text));
      return parser.Finish();
    }
    const size_t lines_end = text.rfind('\n') + 1;  // 0 if there is none
    RETURN_IF_ERROR(parser.AddLines(text.substr(0, lines_end)));
    if (first && num_bytes > got) parser.Reserve(num_bytes, got);
    kept = text.size() - lines_end;
    if (kept > kMaxLineBytes) return parser.LineTooLong();
    std::memmove(buffer.data(), text.data() + lines_end, kept);
  }
}

}  // namespace official::recommendation
