#include "utils/logs/log.h"

#include <sys/ioctl.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace official::logs {
namespace {

constexpr absl::string_view kEraseLine = "\r\x1b[K";
constexpr int kDefaultColumns = 80;

struct Output {
  std::mutex mutex;  // guards all below, and keeps lines whole
  OutputStyle style;
  int fd = STDERR_FILENO;
  std::string live_line;
};

// Never destroyed: threads and destructors of static objects may log until the process ends.
Output& GetOutput() {
  static Output* const output = new Output;
  return *output;
}

// Apart from Output so that a dropped LOG(INFO) takes no lock.
std::atomic<LogFormat> current_format = LogFormat::kSimple;

// Who reads stderr may be gone or slow; logging must not end the run, so what cannot be written is dropped.
void WriteFully(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(written);
  }
}

int TerminalColumns(int fd) {
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefaultColumns;
}

std::string FormatTime(const char* format) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm utc = {};
  gmtime_r(&now.tv_sec, &utc);
  char text[32];
  std::strftime(text, sizeof(text), format, &utc);
  return absl::StrFormat("%s.%03d", text, now.tv_nsec / 1000000);
}

std::string JsonLine(Severity severity, absl::string_view message, Json::Object fields) {
  constexpr const char* kLevels[] = {"info", "warning", "error"};
  Json::Object line = {{"time", FormatTime("%Y-%m-%dT%H:%M:%S") + "Z"},
                       {"level", kLevels[static_cast<int>(severity)]},
                       {"message", std::string(message)}};
  line.insert(line.end(), std::make_move_iterator(fields.begin()), std::make_move_iterator(fields.end()));
  return DumpJson(std::move(line));
}

std::string TextLine(Severity severity, absl::string_view message, bool color) {
  constexpr const char* kLetters[] = {"I", "W", "E"};
  constexpr const char* kColors[] = {"\x1b[32m", "\x1b[33m", "\x1b[31m"};  // green, yellow, red
  const int level = static_cast<int>(severity);
  const std::string letter = color ? absl::StrCat(kColors[level], kLetters[level], "\x1b[0m") : kLetters[level];
  return absl::StrCat(letter, " ", FormatTime("%H:%M:%S"), " ", message);
}

}  // namespace

void InitLogging(const OutputStyle& style, int fd) {
  Output& output = GetOutput();
  std::lock_guard lock(output.mutex);
  output.style = style;
  output.fd = fd;
  output.live_line.clear();
  current_format = style.format;
}

LogFormat CurrentLogFormat() { return current_format; }

bool IsLogged(Severity severity) { return severity != Severity::INFO || current_format != LogFormat::kNone; }

void WriteLog(Severity severity, absl::string_view message, Json::Object fields) {
  if (!IsLogged(severity)) return;
  Output& output = GetOutput();
  std::lock_guard lock(output.mutex);
  std::string line = output.style.format == LogFormat::kJson ? JsonLine(severity, message, std::move(fields))
                                                             : TextLine(severity, message, output.style.color);
  line += '\n';
  // One write a line: lines of other processes on the same terminal then fall between ours, not into them.
  WriteFully(output.fd, output.live_line.empty() ? line : absl::StrCat(kEraseLine, line, output.live_line));
}

void ShowLiveLine(absl::string_view text) {
  Output& output = GetOutput();
  std::lock_guard lock(output.mutex);
  if (output.style.format != LogFormat::kBar) return;
  if (text.empty() && output.live_line.empty()) return;
  // The last column stays free: a terminal wraps when it is filled, and \r could not go back over two lines.
  output.live_line = std::string(text.substr(0, TerminalColumns(output.fd) - 1));
  WriteFully(output.fd, absl::StrCat(kEraseLine, output.live_line));
}

}  // namespace official::logs
