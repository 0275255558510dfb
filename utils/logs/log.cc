#include "utils/logs/log.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/logs/events.h"
#include "utils/logs/live_line.h"
#include "utils/logs/terminal.h"

namespace official::logs {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDefaultColumns = 80;

struct Output {
  std::mutex mutex;  // guards all below, and keeps lines whole
  OutputStyle style;
  int fd = STDERR_FILENO;
  bool reflows = true;
  int columns = kDefaultColumns;  // of a terminal that does not tell
  std::string live_line;          // as it is shown
};

// Never destroyed: threads and destructors of static objects may log until the process ends.
Output& GetOutput() {
  static Output* const output = new Output;
  return *output;
}

// Apart from Output so that a dropped LOG(INFO) takes no lock.
std::atomic<LogFormat> current_format = LogFormat::kSimple;
std::atomic<Clock::time_point> last_line = Clock::now();

// Whether a terminal that becomes narrower breaks its lines anew instead of cutting them. Most do; xterm, the Linux
// console and GNU screen do not.
bool Reflows() {
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  const char* const term = std::getenv("TERM");
  if (is_set("TMUX")) return true;
  return !is_set("XTERM_VERSION") && !is_set("STY") && !(term != nullptr && absl::string_view(term) == "linux");
}

int ColumnsFromEnvironment() {
  const char* const text = std::getenv("COLUMNS");
  int columns;
  return text != nullptr && absl::SimpleAtoi(text, &columns) && columns > 0 ? columns : kDefaultColumns;
}

// Who reads stderr may be gone or slow; logging must not end the run, so what cannot be written is dropped.
void WriteFully(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(written);
  }
}

int TerminalColumns(const Output& output) {
  winsize size = {};
  return ioctl(output.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : output.columns;
}

// The last column stays free: a terminal wraps when it is filled, and \r could not go back over two lines.
int LiveColumns(const Output& output) { return std::max(1, TerminalColumns(output) - 1); }

// What removes the live line from the terminal, of all rows that it fills since the terminal became narrower.
std::string EraseLiveLine(const Output& output) {
  const int drawn = DisplayColumns(output.live_line), columns = TerminalColumns(output);
  if (drawn <= columns || !output.reflows) return "\r\x1b[K";
  return absl::StrFormat("\r\x1b[%dA\x1b[J", (drawn - 1) / columns);
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

constexpr char kEvent[] = "event";

std::string JsonLine(Severity severity, absl::string_view message, Json::Object fields) {
  constexpr const char* kLevels[] = {"info", "warning", "error"};
  constexpr const char* kNoEvents[] = {"message", "warning", "error"};
  const int level = static_cast<int>(severity);
  // LogEvent puts its name first.
  const bool is_event = !fields.empty() && fields[0].first == kEvent;
  Json::Object line = {{"time", FormatTime("%Y-%m-%dT%H:%M:%S") + "Z"},
                       {"level", kLevels[level]},
                       {kEvent, is_event ? std::move(fields[0].second) : Json(kNoEvents[level])},
                       {"message", std::string(message)}};
  line.insert(line.end(), std::make_move_iterator(fields.begin() + is_event), std::make_move_iterator(fields.end()));
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
  output.reflows = Reflows();
  output.columns = ColumnsFromEnvironment();
  output.live_line.clear();
  current_format = style.format;
}

LogFormat CurrentLogFormat() { return current_format; }

bool IsLogged(Severity severity) { return severity != Severity::INFO || current_format != LogFormat::kNone; }

LogMessage::LogMessage(Severity severity) : severity_(severity) {}
LogMessage::~LogMessage() { WriteLog(severity_, message_.str()); }

void WriteLog(Severity severity, absl::string_view message, Json::Object fields) {
  if (!IsLogged(severity)) return;
  Output& output = GetOutput();
  std::lock_guard lock(output.mutex);
  std::string line = output.style.format == LogFormat::kJson ? JsonLine(severity, message, std::move(fields))
                                                             : TextLine(severity, message, output.style.color);
  line += '\n';
  last_line = Clock::now();
  // One write a line: lines of other processes on the same terminal then fall between ours, not into them.
  if (output.live_line.empty()) return WriteFully(output.fd, line);
  line = absl::StrCat(EraseLiveLine(output), line);
  output.live_line = std::string(CutToColumns(output.live_line, LiveColumns(output)));
  WriteFully(output.fd, absl::StrCat(line, output.live_line));
}

void LogEvent(absl::string_view event, absl::string_view message, Json::Object fields) {
  fields.insert(fields.begin(), {kEvent, std::string(event)});
  WriteLog(Severity::INFO, message, std::move(fields));
}

void ShowLiveLine(absl::string_view text) {
  Output& output = GetOutput();
  std::lock_guard lock(output.mutex);
  if (output.style.format != LogFormat::kBar) return;
  if (text.empty() && output.live_line.empty()) return;
  const std::string erase = EraseLiveLine(output);
  output.live_line = std::string(CutToColumns(text, LiveColumns(output)));
  WriteFully(output.fd, absl::StrCat(erase, output.live_line));
}

int LiveLineColumns() {
  Output& output = GetOutput();
  std::lock_guard lock(output.mutex);
  return LiveColumns(output);
}

Clock::time_point TimeOfLastLine() { return last_line; }

void AboveLiveLine(absl::FunctionRef<void()> write) {
  Output& output = GetOutput();
  std::lock_guard lock(output.mutex);
  if (!output.live_line.empty()) WriteFully(output.fd, EraseLiveLine(output));
  write();
  output.live_line = std::string(CutToColumns(output.live_line, LiveColumns(output)));
  WriteFully(output.fd, output.live_line);
}

}  // namespace official::logs
