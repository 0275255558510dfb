#include "utils/run/predict_lines.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"

namespace official::run {
namespace {

constexpr size_t kMaxLineBytes = 1 << 20;

bool HasMore(int fd) {
  pollfd ready = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&ready, 1, 0) > 0;
}

}  // namespace

bool IsStandardInput(const std::vector<std::string>& predict) { return predict.size() == 1 && predict[0] == "-"; }

int64_t FilledBatch(int64_t n) {
  int64_t size = 1;
  while (size < n) size *= 2;
  return size;
}

ArrivingLines::Line ArrivingLines::LineOf(absl::string_view text) {
  absl::ConsumeSuffix(&text, "\r");
  if (!std::exchange(too_long_, false) && text.size() <= kMaxLineBytes) return std::string(text);
  return absl::DataLossError(absl::StrCat("has more than ", kMaxLineBytes, " bytes"));
}

void ArrivingLines::TakeLines(size_t max, std::vector<Line>& lines) {
  size_t begin = 0;
  while (lines.size() < max) {
    const size_t end = buffer_.find('\n', begin);
    if (end == std::string::npos) break;
    lines.push_back(LineOf(absl::string_view(buffer_).substr(begin, end - begin)));
    begin = end + 1;
  }
  buffer_.erase(0, begin);
  if (lines.size() == max) return;
  if (ended_) {
    if (too_long_ || !buffer_.empty()) lines.push_back(LineOf(std::exchange(buffer_, "")));
  } else if (buffer_.size() > kMaxLineBytes + 1) {  // with a carriage return
    too_long_ = true;
    buffer_.clear();
  }
}

absl::StatusOr<std::vector<ArrivingLines::Line>> ArrivingLines::Next(size_t max) {
  std::vector<Line> lines;
  for (;;) {
    TakeLines(max, lines);
    if (lines.size() == max || ended_) return lines;
    if (!lines.empty() && (too_long_ || !HasMore(fd_))) return lines;
    char part[1 << 14];
    const ssize_t n = files::RetryInterrupted([&] { return read(fd_, part, sizeof(part)); });
    if (n < 0) return files::ErrnoStatus(errno, "read", "standard input");
    ended_ = n == 0;
    buffer_.append(part, static_cast<size_t>(n));
  }
}

void LineCount::AddBad(const absl::Status& why) {
  ++lines_;
  ++bad_;
  LOG(ERROR) << "line " << lines_ << ": " << why.message();
}

absl::Status LineCount::Result() const {
  if (bad_ == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(bad_, " of ", lines_, " lines of standard input are bad; the log names them"));
}

}  // namespace official::run
