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
#include "utils/files/files.h"
#include "utils/logs/log.h"

namespace official::recommendation {
namespace {

constexpr size_t kMaxLineBytes = 1024;
constexpr size_t kBufferBytes = 1 << 20;
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

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  absl::Status AddLine(absl::string_view line) {
    ++line_number_;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (separator_.empty()) separator_ = absl::StrContains(line, "::") ? "::" : ",";
    std::array<absl::string_view, 4> fields;
    const size_t num_fields = Split(line, fields);
    if (num_fields != fields.size()) {
      return Error(absl::StrFormat("expected user%sitem%srating%stimestamp, found %s", separator_, separator_,
                                   separator_, line.empty() ? "an empty line" : Quoted(line)));
    }
    if (line_number_ == 1 && IsHeader(fields)) return absl::OkStatus();
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

  // What is behind the last line end.
  absl::Status AddLastLine(absl::string_view line) {
    const absl::Status status = AddLine(line);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(status.message(), ", where the file ends"));
    LOG(WARNING) << name_ << " ends without a line end: it may have been cut in line " << line_number_;
    return status;
  }

  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrFormat("%s line %d: %s", name_, line_number_, what));
  }
  absl::Status LineTooLong() {
    ++line_number_;
    return Error(absl::StrFormat("has more than %d characters: no ratings file?", kMaxLineBytes));
  }

  absl::StatusOr<std::vector<Rating>> Finish() {
    if (ratings_.empty()) return absl::DataLossError(absl::StrCat(name_, " has no ratings"));
    return std::move(ratings_);
  }

 private:
  // Splits at most fields.size() fields off; how many there are, or one more if there are too many.
  size_t Split(absl::string_view line, std::array<absl::string_view, 4>& fields) const {
    for (size_t i = 0; i < fields.size(); ++i) {
      const size_t end = separator_.size() == 1 ? line.find(separator_[0]) : line.find(separator_);
      fields[i] = line.substr(0, end);
      if (end == absl::string_view::npos) return i + 1;
      line.remove_prefix(end + separator_.size());
    }
    return fields.size() + 1;
  }

  static bool IsHeader(const std::array<absl::string_view, 4>& fields) {
    for (const absl::string_view field : fields) {
      if (IsNumber(field)) return false;
    }
    return true;
  }

  absl::Status ParseId(absl::string_view what, absl::string_view text, int32_t& id) const {
    if (ParseNumber(text, id) && id >= 1) return absl::OkStatus();
    return Error(absl::StrFormat("%s %s is not in 1 to %d", what, Quoted(text), std::numeric_limits<int32_t>::max()));
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
    return absl::DataLossError(absl::StrFormat("%s is no zip archive that can be read: %s", path, reason));
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
    if (base != "ratings.csv" && base != "ratings.dat") continue;
    if (found) return absl::DataLossError(absl::StrFormat("%s has two ratings files: %s and %s", path, name, entry));
    found = i;
    name = entry;
  }
  if (!found) return absl::DataLossError(absl::StrCat(path, " has no ratings.csv and no ratings.dat"));
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
  if (absl::EndsWith(path, ".zip")) return ReadZip(path);
  ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(path));
  int64_t offset = 0;
  return ParseRatings(path, [&](char* buffer, int64_t size) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const int64_t got, file->ReadSome(offset, size, buffer));
    offset += got;
    return got;
  });
}

absl::StatusOr<std::vector<Rating>> ParseRatings(const std::string& name, ReadFn read) {
  Parser parser(name);
  std::vector<char> buffer(kMaxLineBytes + kBufferBytes);
  size_t kept = 0;  // bytes at the front of the buffer, of a line that is not yet complete
  for (;;) {
    ASSIGN_OR_RETURN(const int64_t got, read(buffer.data() + kept, kBufferBytes));
    absl::string_view text(buffer.data(), kept + got);
    if (got == 0) {
      if (kept > 0) RETURN_IF_ERROR(parser.AddLastLine(text));
      return parser.Finish();
    }
    for (size_t end; (end = text.find('\n')) != absl::string_view::npos; text.remove_prefix(end + 1)) {
      if (end > kMaxLineBytes) return parser.LineTooLong();
      RETURN_IF_ERROR(parser.AddLine(text.substr(0, end)));
    }
    if (text.size() > kMaxLineBytes) return parser.LineTooLong();
    kept = text.size();
    std::memmove(buffer.data(), text.data(), kept);
  }
}

}  // namespace official::recommendation
