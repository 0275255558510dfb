#include "official/recommendation/data/ratings_file.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "official/recommendation/data/zip_member.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::recommendation {
namespace {

constexpr size_t kMaxLineBytes = 1024;
constexpr size_t kBufferBytes = 1 << 16;

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

absl::Status RefuseBadLine(int64_t, const absl::Status& error) { return error; }

class Parser {
 public:
  // Without `keep` the ratings are only counted. Both arguments outlive the parser.
  Parser(const std::string& name, BadLineFn on_bad_line, bool keep)
      : name_(name), on_bad_line_(on_bad_line), keep_(keep) {}

  // Whole lines, each with its end.
  absl::Status AddLines(absl::string_view lines) {
    const char *line = lines.data(), *const end = line + lines.size();
    while (line < end) {
      if (const char* const next = AddPlainLine(line); next != nullptr) {
        line = next;
        continue;
      }
      const auto* const line_end = static_cast<const char*>(std::memchr(line, '\n', end - line));
      if (line_end - line > static_cast<int64_t>(kMaxLineBytes)) {
        RETURN_IF_ERROR(LineTooLong());
      } else {
        RETURN_IF_ERROR(LeftOut(AddLine(absl::string_view(line, line_end - line))));
      }
      line = line_end + 1;
    }
    if (!keep_) DropRatings();
    return absl::OkStatus();
  }

  // What is behind the last line end.
  absl::Status AddLastLine(absl::string_view line) {
    const absl::Status status = AddLine(line);
    if (!status.ok()) {
      return LeftOut(absl::Status(status.code(), absl::StrCat(status.message(), ", where the file ends")));
    }
    LOG(WARNING) << name_ << " ends without a line end: it may have been cut in line " << line_number_;
    return status;
  }

  absl::Status LineTooLong() {
    ++line_number_;
    return LeftOut(Error(absl::StrFormat("has more than %d characters: is this a ratings file?", kMaxLineBytes)));
  }

  absl::Status Finish() {
    DropRatings();
    return num_ratings_ > 0 ? absl::OkStatus() : absl::DataLossError(absl::StrCat(name_, " has no ratings"));
  }

  // After Finish(): the ratings, none without `keep`, and their number.
  std::vector<Rating> TakeRatings() { return std::move(ratings_); }
  int64_t num_ratings() const { return num_ratings_; }

  // Makes room for as many ratings as `num_bytes` will hold, if they are like the first `num_read`.
  void Reserve(int64_t num_bytes, int64_t num_read) {
    ratings_.reserve(static_cast<size_t>(1.01 * static_cast<double>(ratings_.size()) * num_bytes / num_read));
  }

 private:
  // Returns OK for a bad line that may be left out.
  absl::Status LeftOut(const absl::Status& status) { return status.ok() ? status : on_bad_line_(line_number_, status); }

  // Counts the ratings since the last call.
  void DropRatings() {
    num_ratings_ += static_cast<int64_t>(ratings_.size());
    if (!keep_) ratings_.clear();
  }

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
    if (line_number_ == 1) absl::ConsumePrefix(&line, "\xef\xbb\xbf");  // a byte order mark
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
  const BadLineFn on_bad_line_;
  const bool keep_;
  absl::string_view separator_;  // told by the first line
  int64_t line_number_ = 0;
  std::vector<Rating> ratings_;
  int64_t num_ratings_ = 0;
};

// Feeds the parser all that `read` gives.
absl::Status ParseAll(Parser& parser, const std::string& name, ReadFn read, int64_t num_bytes, bool keep) {
  logs::TaskProgress progress(
      {.title = absl::StrCat("reading ", name.substr(name.rfind('/') + 1)), .total = num_bytes, .unit = "B"});
  std::vector<char> buffer(kMaxLineBytes + kBufferBytes);
  size_t kept = 0;        // bytes at the front of the buffer, of a line that is not yet complete
  bool too_long = false;  // true within a line that is too long, of which nothing is kept
  for (bool first = true;; first = false) {
    ASSIGN_OR_RETURN(const int64_t got, read(buffer.data() + kept, kBufferBytes));
    progress.Add(got);
    absl::string_view text(buffer.data(), kept + got);
    if (got == 0) {
      if (kept > 0) RETURN_IF_ERROR(parser.AddLastLine(text));
      return parser.Finish();
    }
    if (too_long) {
      const size_t end = text.find('\n');
      if (end == absl::string_view::npos) continue;
      text.remove_prefix(end + 1);
      too_long = false;
    }
    const size_t lines_end = text.rfind('\n') + 1;  // 0 if there is none
    RETURN_IF_ERROR(parser.AddLines(text.substr(0, lines_end)));
    if (first && keep && num_bytes > got) parser.Reserve(num_bytes, got);
    text.remove_prefix(lines_end);
    kept = text.size();
    if (kept > kMaxLineBytes) {
      RETURN_IF_ERROR(parser.LineTooLong());
      too_long = true;
      kept = 0;
    }
    std::memmove(buffer.data(), text.data(), kept);
  }
}

// Parses the bytes of a file.
using FileFn = absl::FunctionRef<absl::Status(const std::string& name, ReadFn read, int64_t num_bytes)>;

absl::Status ReadZip(const std::string& path, FileFn parse) {
  ASSIGN_OR_RETURN(ZipMember member, ZipMember::Open(path, {"ratings.csv", "ratings.dat", "u.data"}));
  const auto read = [&](char* buffer, int64_t size) { return member.Read(buffer, size); };
  return parse(member.name(), read, /*num_bytes=*/0);
}

absl::Status ReadFile(const std::string& path, FileFn parse) {
  const absl::string_view kind = data::KindOfFile(path);
  if (absl::EndsWith(path, ".zip") || kind == "a zip archive") return ReadZip(path, parse);
  if (!kind.empty()) return absl::DataLossError(absl::StrCat(path, " has no ratings: the file is ", kind));
  ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(path));
  int64_t offset = 0;
  const auto read = [&](char* buffer, int64_t size) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const int64_t got, file->ReadSome(offset, size, buffer));
    offset += got;
    return got;
  };
  return parse(path, read, file->size());
}

}  // namespace

absl::StatusOr<std::vector<Rating>> ReadRatings(const std::string& path) { return ReadRatings(path, RefuseBadLine); }

absl::StatusOr<std::vector<Rating>> ReadRatings(const std::string& path, BadLineFn on_bad_line) {
  std::vector<Rating> ratings;
  RETURN_IF_ERROR(ReadFile(path, [&](const std::string& name, ReadFn read, int64_t num_bytes) -> absl::Status {
    Parser parser(name, on_bad_line, /*keep=*/true);
    RETURN_IF_ERROR(ParseAll(parser, name, read, num_bytes, /*keep=*/true));
    ratings = parser.TakeRatings();
    return absl::OkStatus();
  }));
  return ratings;
}

absl::StatusOr<int64_t> CountRatings(const std::string& path, BadLineFn on_bad_line) {
  int64_t num_ratings = 0;
  RETURN_IF_ERROR(ReadFile(path, [&](const std::string& name, ReadFn read, int64_t num_bytes) -> absl::Status {
    Parser parser(name, on_bad_line, /*keep=*/false);
    RETURN_IF_ERROR(ParseAll(parser, name, read, num_bytes, /*keep=*/false));
    num_ratings = parser.num_ratings();
    return absl::OkStatus();
  }));
  return num_ratings;
}

bool LooksLikeRatings(absl::string_view text) {
  const std::string name;
  int64_t num_bad = 0;
  const auto count = [&](int64_t, const absl::Status&) {
    ++num_bad;
    return absl::OkStatus();
  };
  Parser parser(name, count, /*keep=*/false);
  return parser.AddLines(text.substr(0, text.rfind('\n') + 1)).ok() && parser.Finish().ok() &&
         parser.num_ratings() >= num_bad;
}

absl::StatusOr<std::vector<Rating>> ParseRatings(const std::string& name, ReadFn read, int64_t num_bytes) {
  Parser parser(name, RefuseBadLine, /*keep=*/true);
  RETURN_IF_ERROR(ParseAll(parser, name, read, num_bytes, /*keep=*/true));
  return parser.TakeRatings();
}

}  // namespace official::recommendation
