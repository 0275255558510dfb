#include "utils/logs/live_line.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "utils/logs/captured_log.h"
#include "utils/logs/events.h"
#include "utils/logs/terminal.h"

namespace official::logs {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::Matches;

// A pseudo terminal that the log goes to.
class Terminal {
 public:
  explicit Terminal(int columns) : main_(posix_openpt(O_RDWR | O_NOCTTY)) {
    REQUIRE(grantpt(main_) == 0);
    REQUIRE(unlockpt(main_) == 0);
    fd_ = open(ptsname(main_), O_RDWR | O_NOCTTY);
    REQUIRE(fd_ >= 0);
    Resize(columns);
    InitLogging({LogFormat::kBar, false}, fd_);
  }
  ~Terminal() {
    InitLogging({});
    close(fd_);
    close(main_);
  }
  void Resize(int columns) const {
    const winsize size = {.ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(ioctl(fd_, TIOCSWINSZ, &size) == 0);
  }
  // What was written since the last call.
  std::string Read() const {
    char bytes[4096];
    const ssize_t got = read(main_, bytes, sizeof(bytes));
    REQUIRE(got > 0);
    return std::string(bytes, got);
  }

 private:
  int main_, fd_;
};

const std::vector<LinePart> kParts = {{"evaluating step 600"},
                                      {.text = " 45%", .before = " "},
                                      {.text = "", .rank = 1, .before = " ", .bar = 0.45},
                                      {.text = "4500/10000 examples", .rank = 3},
                                      {.text = "0:05"},
                                      {.text = "0:07 left", .rank = 2}};

TEST_CASE("What has a high rank is left out where it does not fit, the bar takes what is left") {
  CHECK(FitLine(kParts, 199) ==
        "evaluating step 600  45% [============>               ] 4500/10000 examples, 0:05, 0:07 left");
  CHECK(FitLine(kParts, 79) == "evaluating step 600  45% [======>       ] 4500/10000 examples, 0:05, 0:07 left");
  CHECK(FitLine(kParts, 59) == "evaluating step 600  45% [======>        ] 0:05, 0:07 left");
  CHECK(FitLine(kParts, 39) == "evaluating step 600  45% [==>   ] 0:05");
}

TEST_CASE("The first part is cut for what must stand there; no line is wider than the terminal") {
  CHECK(FitLine(kParts, 24) == "evaluating st  45%, 0:05");
  for (int columns = 1; columns < 120; ++columns) {
    CAPTURE(columns);
    CHECK(DisplayColumns(FitLine(kParts, columns)) <= columns);
  }
}

TEST_CASE("A bar is empty at 0, full at 1") {
  const auto bar = [](double fraction) { return FitLine({{"x"}, {.text = "", .before = " ", .bar = fraction}}, 12); };
  CHECK(bar(0) == "x [>       ]");
  CHECK(bar(0.5) == "x [====>   ]");
  CHECK(bar(1) == "x [========]");
  CHECK(bar(1.5) == "x [========]");
}

TEST_CASE("Columns are those of characters, not bytes") {
  CHECK(DisplayColumns("Gr\u00fc\u00dfe") == 5);
  CHECK(DisplayColumns("\u6587\u5b57") == 4);
  CHECK(DisplayColumns("a\xff\xe6") == 3);
  CHECK(CutToColumns("Gr\u00fc\u00dfe", 3) == "Gr\u00fc");
  CHECK(CutToColumns("\u6587\u5b57", 3) == "\u6587");
  CHECK(WithoutControls("a\n\x1b[2Jb\x7f") == "a??[2Jb?");
}

TEST_CASE("A live line fits the terminal as it is when the line is drawn") {
  const Terminal terminal(40);
  CHECK(LiveLineColumns() == 39);
  ShowLiveLine(std::string(100, 'x'));
  CHECK(terminal.Read() == "\r\x1b[K" + std::string(39, 'x'));
  terminal.Resize(60);
  ShowLiveLine(std::string(100, 'y'));
  CHECK(terminal.Read() == "\r\x1b[K" + std::string(59, 'y'));
}

TEST_CASE("When a terminal has become narrower, all rows that the line then fills are removed") {
  unsetenv("XTERM_VERSION");
  unsetenv("STY");
  setenv("TERM", "xterm-256color", 1);
  const Terminal terminal(80);
  ShowLiveLine(std::string(79, 'x'));
  terminal.Read();
  terminal.Resize(30);
  LOG(INFO) << "saved";
  // 79 characters are three rows of 30 columns: two up, then down to the end of the screen.
  const std::string text = terminal.Read();
  CHECK_THAT(text, Catch::Matchers::StartsWith("\r\x1b[2A\x1b[JI "));
  CHECK_THAT(text, EndsWith(" saved\r\n" + std::string(29, 'x')));
  ShowLiveLine("short");
  CHECK(terminal.Read() == "\r\x1b[Kshort");
}

TEST_CASE("A terminal without a width has that of COLUMNS") {
  setenv("COLUMNS", "50", 1);
  const Terminal terminal(0);
  CHECK(LiveLineColumns() == 49);
  unsetenv("COLUMNS");
}

TEST_CASE("Lines of another stream come above the live line") {
  CapturedLog log(LogFormat::kBar);
  ShowLiveLine("step 2");
  std::string other;
  AboveLiveLine([&] { other = log.Text(); });
  CHECK(other == "\r\x1b[Kstep 2\r\x1b[K");
  CHECK(log.Text() == "\r\x1b[Kstep 2\r\x1b[Kstep 2");
}

TEST_CASE("An event has its name after the level; other lines have \"message\" there, or the level's") {
  CapturedLog log(LogFormat::kJson);
  LogEvent("save", "saved", {{"global_step", 7}});
  LOG(INFO) << "text";
  LOG(WARNING) << "slow";
  CHECK_THAT(log.Text(), Matches(R"RE(.*"level": "info", "event": "save", "message": "saved", "global_step": 7\}\n)RE"
                                 R"RE(.*"level": "info", "event": "message", "message": "text"\}\n)RE"
                                 R"RE(.*"level": "warning", "event": "warning", "message": "slow"\}\n)RE"));
}

TEST_CASE("The time of the last line is that of any line") {
  CapturedLog log(LogFormat::kSimple);
  const auto before = std::chrono::steady_clock::now();
  LOG(INFO) << "text";
  CHECK(TimeOfLastLine() >= before);
}

}  // namespace
}  // namespace official::logs
