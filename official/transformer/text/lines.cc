#include "official/transformer/text/lines.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "official/transformer/text/unicode.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"

namespace official::transformer {
namespace {

constexpr int64_t kReadBytes = 1 << 18;
constexpr size_t kMaxLineBytes = 16 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<LineReader>> LineReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, files::RandomAccessFile::Open(path));
  return std::unique_ptr<LineReader>(new LineReader(std::move(file)));
}

absl::StatusOr<bool> LineReader::Fill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t kept = buffer_.size();
  buffer_.resize(kept + kReadBytes);
  ASSIGN_OR_RETURN(const int64_t got, file_->ReadSome(offset_, kReadBytes, buffer_.data() + kept));
  buffer_.resize(kept + got);
  offset_ += got;
  return got > 0;
}

absl::StatusOr<bool> LineReader::Next(absl::string_view* line) {
  size_t end;
  for (size_t searched = begin_;;) {
    end = buffer_.find('\n', searched);
    if (end != std::string::npos) break;
    searched = buffer_.size() - begin_;
    if (searched > kMaxLineBytes) break;
    ASSIGN_OR_RETURN(const bool more, Fill());
    if (more) continue;
    if (buffer_.empty()) return false;
    end = buffer_.size();
    break;
  }
  ++line_number_;
  if (std::min(end, buffer_.size()) - begin_ > kMaxLineBytes) {
    can_go_on_ = false;
    return absl::DataLossError(absl::StrFormat("%s:%d: the line is longer than %d bytes; is this a text file?%s",
                                               file_->path(), line_number_, kMaxLineBytes,
                                               data::KindNoteOfFile(file_->path())));
  }
  line_.assign(buffer_, begin_, end - begin_);
  begin_ = std::min(end + 1, buffer_.size());
  line_.erase(std::remove(line_.begin(), line_.end(), '\r'), line_.end());
  if (const size_t invalid = FindInvalidUtf8(line_); invalid != absl::string_view::npos) {
    return absl::DataLossError(absl::StrFormat("%s:%d: byte %d of the line, 0x%02x, is not UTF-8%s", file_->path(),
                                               line_number_, invalid + 1, static_cast<uint8_t>(line_[invalid]),
                                               data::KindNoteOfFile(file_->path())));
  }
  *line = line_;
  return true;
}

}  // namespace official::transformer
