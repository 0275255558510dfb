#include "utils/run/predict_lines.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <sstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/logs/captured_log.h"

namespace official::run {
namespace {

using Catch::Contains;
using Strings = std::vector<std::string>;

class Pipe {
 public:
  Pipe() { REQUIRE(pipe(fds_) == 0); }
  ~Pipe() {
    close(fds_[0]);
    End();
  }
  int out() const { return fds_[0]; }
  void Write(const std::string& text) const {
    REQUIRE(write(fds_[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void End() {
    if (fds_[1] >= 0) close(std::exchange(fds_[1], -1));
  }

 private:
  int fds_[2];
};

// The next lines, all of which are good.
Strings Next(ArrivingLines& lines, size_t max) {
  Strings texts;
  const std::vector<ArrivingLines::Line> next = lines.Next(max).value();
  for (const ArrivingLines::Line& line : next) texts.push_back(line.value());
  return texts;
}

TEST_CASE("lines come as soon as they have arrived, as many as there are") {
  Pipe pipe;
  ArrivingLines lines(pipe.out());
  pipe.Write("one\ntwo\r\n\nthr");
  CHECK(Next(lines, 10) == Strings{"one", "two", ""});
  pipe.Write("ee\nfour\nfive\nsix\r");
  CHECK(Next(lines, 2) == Strings{"three", "four"});
  CHECK(Next(lines, 2) == Strings{"five"});
  pipe.End();
  CHECK(Next(lines, 2) == Strings{"six"});
  CHECK(Next(lines, 2).empty());
}

TEST_CASE("a descriptor that cannot be read is an error") {
  CHECK(absl::IsAborted(ArrivingLines(-1).Next(1).status()));
}

absl::StatusOr<int> Number(const std::string& line) {
  int number;
  if (absl::SimpleAtoi(line, &number)) return number;
  return absl::InvalidArgumentError(absl::StrCat("'", line, "' is not a number"));
}

TEST_CASE("bad lines are named, the others predicted in order") {
  Pipe pipe;
  pipe.Write("1\nx\n\n2\n3\n4y");
  pipe.End();
  std::ostringstream out;
  std::vector<size_t> batches;
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const absl::Status status = PredictLines<int>(
      pipe.out(), 3, Number,
      [&](const std::vector<int>& numbers) {
        batches.push_back(numbers.size());
        for (const int number : numbers) out << number << "\n";
        return absl::OkStatus();
      },
      out);
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains("2 of 6 lines of standard input are bad"));
  CHECK_THAT(log.Text(), Contains("line 2: 'x' is not a number") && Contains("line 6: '4y' is not a number"));
  CHECK(out.str() == "1\n2\n3\n");
  CHECK(batches == std::vector<size_t>{1, 2});
}

TEST_CASE("a line that is too long is a bad one") {
  constexpr size_t kMax = 1 << 20;
  const std::string zeros(kMax - 1, '0');
  Pipe pipe;
  std::thread writer([&] {
    for (const std::string& text :
         {"1\n" + zeros + "02\n3\n" + zeros + "4\r\n", zeros + zeros + zeros + "\n", zeros + "05"}) {
      for (size_t i = 0; i < text.size(); i += 4096) pipe.Write(text.substr(i, 4096));
    }
    pipe.End();
  });
  std::vector<int> found;
  logs::CapturedLog log(logs::LogFormat::kSimple);
  std::ostringstream out;
  const auto predict = [&](const std::vector<int>& numbers) {
    found.insert(found.end(), numbers.begin(), numbers.end());
    return absl::OkStatus();
  };
  const absl::Status status = PredictLines<int>(pipe.out(), 3, Number, predict, out);
  writer.join();
  CHECK(found == std::vector<int>{1, 3, 4});
  CHECK_THAT(std::string(status.message()), Contains("3 of 6 lines of standard input are bad"));
  for (const int line : {2, 5, 6}) {
    CHECK_THAT(log.Text(), Contains(absl::StrCat("line ", line, ": has more than 1048576 bytes")));
  }
}

TEST_CASE("bad files are named, the others predicted in order; the error of an only file stays as it is") {
  std::vector<int> found;
  const auto predict = [&](const int& number) {
    found.push_back(number);
    return number < 9 ? absl::OkStatus() : absl::InternalError("too large");
  };
  logs::CapturedLog log(logs::LogFormat::kSimple);
  CHECK(PredictFiles<int>({"1", "2"}, Number, predict).ok());
  const absl::Status status = PredictFiles<int>({"x", "3", "y", "4"}, Number, predict);
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message() == "2 of 4 files are bad; the log names them");
  CHECK_THAT(log.Text(), Contains("'x' is not a number") && Contains("'y' is not a number"));
  CHECK(found == std::vector<int>{1, 2, 3, 4});
  CHECK(PredictFiles<int>({"z"}, Number, predict) == Number("z").status());
  CHECK_THAT(log.Text(), !Contains("'z'"));
  CHECK(absl::IsInternal(PredictFiles<int>({"x", "9", "5"}, Number, predict)));
  CHECK(found.back() == 9);
  const auto read = [](const std::string&) -> absl::StatusOr<int> { return absl::AbortedError("the disk is ill"); };
  CHECK(absl::IsAborted(PredictFiles<int>({"1", "2"}, read, predict)));
}

TEST_CASE("an error of the prediction ends it") {
  Pipe pipe;
  pipe.Write("1\n2\n");
  std::ostringstream out;
  const auto fail = [](const std::vector<int>&) { return absl::InternalError("no"); };
  CHECK(absl::IsInternal(PredictLines<int>(pipe.out(), 1, Number, fail, out)));
  out.setstate(std::ios::badbit);
  pipe.Write("3\n");
  const auto succeed = [](const std::vector<int>&) { return absl::OkStatus(); };
  CHECK(absl::IsAborted(PredictLines<int>(pipe.out(), 1, Number, succeed, out)));
}

}  // namespace
}  // namespace official::run
