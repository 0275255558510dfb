#include "utils/train/evaluations/evaluation_history.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string NewDirectory() {
  static int counter = 0;
  const char* directory = std::getenv("TEST_TMPDIR");
  return absl::StrCat(directory ? directory : "/tmp", "/history-", ++counter);
}

// A history whose evaluations, at steps 10, 20, ..., have these accuracies.
EvaluationHistory HistoryOf(const std::vector<double>& accuracies) {
  EvaluationHistory history;
  for (size_t i = 0; i < accuracies.size(); ++i) {
    history.Add(10 * static_cast<int64_t>(i + 1), {{"accuracy", accuracies[i]}});
  }
  return history;
}

TEST_CASE("Rules are a metric, a direction and a number") {
  const MetricRule rule = ParseMetricRule("metrics/accuracy:min:3", std::nullopt).value();
  CHECK(rule.metric == "metrics/accuracy");
  CHECK_FALSE(rule.increases);
  CHECK(rule.number == 3);
  CHECK(ParseMetricRule("loss:max", 1)->number == 1);
  CHECK(ParseMetricRule("loss:max:2", 1)->increases);
  for (const char* bad : {"", "loss", ":max:2", "loss:up:2", "loss:max:0", "loss:max:-1", "loss:max:x",
                          "loss:max:", "loss:max:2:3", "loss:max:99999999999999999999"}) {
    CAPTURE(bad);
    CHECK_FALSE(ParseMetricRule(bad, 1).has_value());
  }
  CHECK_FALSE(ParseMetricRule("loss:max", std::nullopt).has_value());
}

TEST_CASE("The best evaluations: an equal value is no improvement, and what is no number is the worst") {
  const EvaluationHistory history = HistoryOf({0.5, 0.75, 0.75, kNaN, 0.25});
  const std::set<int64_t> all = {10, 20, 30, 40, 50};
  const auto best = [&](const char* rule, const std::set<int64_t>& steps) {
    return history.Best(steps, ParseMetricRule(rule, 1).value());
  };
  using Steps = std::vector<int64_t>;
  CHECK(best("accuracy:max", all) == Steps{20});
  CHECK(best("accuracy:max:2", all) == Steps{30, 20});
  CHECK(best("accuracy:max:9", all) == Steps{40, 50, 10, 30, 20});
  CHECK(best("accuracy:min:2", all) == Steps{10, 50});
  CHECK(best("accuracy:max:2", {10, 50, 60}) == Steps{50, 10});
  CHECK(best("accuracy:max:3", {10, 60}) == Steps{60, 10});  // nothing is known of step 60

  const auto since = [](const std::vector<double>& accuracies, const char* rule) {
    return HistoryOf(accuracies).BestOf(ParseMetricRule(rule, 1).value())->evaluations_since;
  };
  CHECK(since({0.5}, "accuracy:max") == 0);
  CHECK(since({0.5, 0.75, 0.75, kNaN, 0.25}, "accuracy:max") == 3);
  CHECK(since({0.5, 0.75, 0.75, kNaN, 0.25}, "accuracy:min") == 0);
  CHECK(since({kNaN, kNaN, 0.25}, "accuracy:max") == 0);
  CHECK_FALSE(history.BestOf(ParseMetricRule("loss:max", 1).value()).has_value());
}

TEST_CASE("The file keeps every bit, and a training that went back forgets what came later") {
  const std::string dir = NewDirectory();
  const MetricRule rule = ParseMetricRule("HR", 1).value_or(MetricRule{"HR", true, 9});
  EvaluationHistory history = EvaluationHistory::Read(dir).value();
  CHECK_FALSE(history.BestOf(rule).has_value());
  history.Add(5, {{"HR", 1.0 / 3}, {"global_step", 5}, {"loss", kNaN}});
  history.Add(10, {{"HR", 0.9}, {"loss", 1e300}});
  REQUIRE(history.Write(dir).ok());
  CHECK_THAT(files::ReadFile(dir + "/eval/results.txt", 1000).value(),
             Contains("5 HR=0.33333333333333331 loss=nan\n10 HR=0.9"));
  history = EvaluationHistory::Read(dir).value();
  CHECK(history.BestOf(rule)->value == 0.9);
  history.ForgetAfter(9);
  CHECK(history.BestOf(rule)->value == 1.0 / 3);
  history.Add(3, {{"HR", 0.1}});
  CHECK(history.BestOf(rule)->step == 3);
  for (const char* bad : {"5 HR=x\n", "x HR=1\n", "5 HR\n", "5 HR=1\n6 HR=0.", "\n"}) {
    CAPTURE(bad);
    REQUIRE(files::WriteFileAtomically(dir + "/eval/results.txt", bad).ok());
    const absl::Status status = EvaluationHistory::Read(dir).status();
    CHECK(absl::IsDataLoss(status));
    CHECK_THAT(std::string(status.message()), Contains("/eval/results.txt: line ") && Contains("remove the file"));
  }
}

TEST_CASE("Names of metrics may have blanks, and whatever else a program calls them") {
  const std::string dir = NewDirectory();
  const std::vector<std::pair<std::string, double>> results = {
      {"", 1}, {" ", 2}, {"100%", 3}, {"50%25", 4}, {"a=b", 5}, {"\xc3\xa9t\xc3\xa9\n", 6}, {"top 5", 7}};
  EvaluationHistory history;
  history.Add(5, results);
  REQUIRE(history.Write(dir).ok());
  CHECK_THAT(files::ReadFile(dir + "/eval/results.txt", 1000).value(), Contains(" top%205=7 "));
  const absl::StatusOr<EvaluationHistory> read = EvaluationHistory::Read(dir);
  REQUIRE(read.ok());
  for (const auto& [name, value] : results) {
    CAPTURE(name);
    const auto best = read->BestOf({name, true, 1});
    REQUIRE(best.has_value());
    CHECK(best->value == value);
  }
  // A file of an earlier version, which wrote a percent sign as it is.
  REQUIRE(files::WriteFileAtomically(dir + "/eval/results.txt", "5 100%=0.5 %zz=1\n").ok());
  CHECK(EvaluationHistory::Read(dir)->BestOf({"100%", true, 1})->value == 0.5);
  CHECK(EvaluationHistory::Read(dir)->BestOf({"%zz", true, 1})->value == 1);
}

}  // namespace
}  // namespace official::train
