#include "official/report/metric_log.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "official/report/lines.h"
#include "official/report/python_json.h"
#include "utils/compute/core/status.h"

namespace official::report {
namespace {

struct Record {
  std::string name;
  double value = 0;
  int64_t step = 0;
  bool is_marked = false;  // as one of training
};

// True if the record's extras tell that it is of training.
bool IsMarked(const nlohmann::json& record) {
  const auto extras = record.find("extras");
  return extras != record.end() && extras->is_array() &&
         std::find(extras->begin(), extras->end(), nlohmann::json{{"name", "mode"}, {"value", "train"}}) !=
             extras->end();
}

// The names under which training hooks log; evaluations log all others, and a loss too.
bool IsOfTraining(const std::string& name) {
  return name == "cross_entropy" || name == "cross_entropy_loss" || name == "learning_rate" || name == "l2_loss" ||
         absl::StartsWith(name, "train_") || absl::EndsWith(name, "examples_per_sec");
}

// False if the line is not a metric. A metric without a step has step -1, which no curve keeps.
bool Parse(absl::string_view line, Record& record) {
  const nlohmann::json json = ParsePythonJson(line);
  if (!json.is_object()) return false;
  const auto name = json.find("name"), value = json.find("value"), step = json.find("global_step");
  if (name == json.end() || !name->is_string() || value == json.end()) return false;
  if (!value->is_number() && !value->is_null()) return false;
  record.name = *name;
  record.value = value->is_number() ? value->get<double>() : std::nan("");
  record.is_marked = IsMarked(json);
  record.step = step != json.end() && step->is_number_integer() ? step->get<int64_t>() : -1;
  return true;
}

// Divides records into those of the training and of evaluations. Where losses of the training are marked, all others
// are of evaluations. Else an evaluation logs its metrics in the order of their names, so that its loss comes after
// "accuracy" or before "metrics/accuracy" of the same step.
class Sorter {
 public:
  explicit Sorter(Curves& curves) : curves_(curves) {}

  void Add(const Record& record) {
    const bool has_metric = record.name != "loss" && !IsOfTraining(record.name);
    if (loss_) PutLoss(has_metric && record.step == loss_->step && record.name > loss_->name);
    has_marks_ |= record.is_marked;
    if (record.name != "loss") {
      Put(record, has_metric);
    } else if (has_marks_ || (evaluated_step_ == record.step && record.step >= 0)) {
      Put(record, /*of_evaluation=*/!record.is_marked);
    } else {
      loss_ = record;
    }
  }
  // Adds what is still held, after the last record.
  void Finish() {
    if (loss_) PutLoss(/*of_evaluation=*/false);
  }

 private:
  void PutLoss(bool of_evaluation) { Put(*std::exchange(loss_, std::nullopt), of_evaluation); }
  void Put(const Record& record, bool of_evaluation) {
    evaluated_step_ = of_evaluation ? record.step : -1;
    std::string name = record.name;
    if (name == "average_examples_per_sec") return;  // the current speed says more
    if (absl::StartsWith(name, "train_")) name.erase(0, 6);
    AddValue({name, of_evaluation ? Split::kEvaluation : Split::kTraining}, record.step, record.value, curves_);
  }

  Curves& curves_;
  bool has_marks_ = false;       // losses of the training are marked from here on
  int64_t evaluated_step_ = -1;  // of the record before, if it was of an evaluation
  std::optional<Record> loss_;   // held until the next record, which may tell that it is an evaluation's
};

}  // namespace

absl::Status ReadMetricLog(const std::string& path, Curves& curves, std::vector<std::string>& notes) {
  Sorter sorter(curves);
  int64_t number = 0, num_bad = 0, first_bad = 0;
  const auto read_line = [&](absl::string_view line, bool has_end) {
    ++number;
    if (line.empty()) return;
    Record record;
    if (Parse(line, record)) {
      sorter.Add(record);
    } else if (has_end && ++num_bad == 1) {
      first_bad = number;
    }
  };
  RETURN_IF_ERROR(ForEachLine(path, read_line));
  sorter.Finish();
  if (num_bad > 0) {
    notes.push_back(
        absl::StrCat(path, ": ", num_bad, " of ", number, " lines are not metrics, the first is line ", first_bad));
  }
  return absl::OkStatus();
}

}  // namespace official::report
