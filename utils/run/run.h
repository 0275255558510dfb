// The run of every training program: devices, lock, data, training with evaluations in between, export. The differences
// between models are in a Task.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/flags/base.h"
#include "utils/flags/benchmark.h"
#include "utils/flags/performance.h"
#include "utils/logs/json.h"
#include "utils/logs/run_info.h"
#include "utils/run/input.h"
#include "utils/train/estimator.h"
#include "utils/train/model.h"

namespace official::run {

// The shared flags.
struct Config {
  flags::BaseConfig base;
  flags::PerformanceConfig performance;
  flags::BenchmarkConfig benchmark;
  std::string flags_text;             // all flags, for the event file
  std::string taken_from_training;    // flags that have their value from the training in model_dir
  std::vector<std::string> notes;     // logged for the user when the run begins
  std::vector<std::string> warnings;  // the same for flags that have no effect
  std::string commit = "unknown";     // the commit of the program, for the run record
};
Config ConfigFromFlags(const flags::CommandLine& command_line);

// Sends the log to stderr in the form that --log_format wants, and logs the notes and which flags have their value from
// the training in model_dir. InvalidArgument for a form that does not exist.
absl::Status InitLogging(const Config& config);

struct Task {
  std::string name;  // "mnist", of the run record
  // Loads the data; called once model_dir is locked, before anything is written.
  std::function<absl::StatusOr<Input>()> load;
  // Returns the model for the data that `load` returned.
  std::function<train::Model(const Input& input)> model;
  std::string stop_metric = "accuracy";  // metric that --stop_threshold is compared with
  std::vector<std::string> tensors_to_log = {"cross_entropy", "learning_rate", "train_accuracy"};
  // The total number of steps and the number between evaluations, instead of epochs.
  struct Steps {
    int64_t total, between_evals;
  };
  std::optional<Steps> steps = std::nullopt;
  // Parameters for the run record, in addition to those of every model.
  std::vector<std::pair<std::string, logs::RunParameter>> run_parameters = {};
  // A checkpoint or directory that a new run takes the model's variables from, where they fit (--fine_tune).
  std::optional<std::string> fine_tune = std::nullopt;
  std::string mismatch_hint = "";  // ends the error for a --model_dir with a checkpoint of another model
  // Returns results of an evaluation in addition to the Estimator's, for what was trained so far; unset: none.
  std::function<absl::StatusOr<train::EvalResults>(const train::Estimator& estimator)> evaluate_more = nullptr;
  // Called with the results of each evaluation and its number in the whole training, from 1.
  std::function<void(const train::EvalResults& results, int64_t round)> evaluated = nullptr;
  // MLPerf's log of the training (utils/logs/mlperf_log.h): it has each round of training and evaluation, with
  // `stop_metric` as the accuracy. The run is a success if that passes --stop_threshold, or, without one, if it
  // finishes.
  struct MlperfLog {
    std::string path;
    std::string benchmark;  // "ncf"
    // Returns the log's values for the model, in addition to those of every run; called once the data is loaded.
    std::function<std::vector<std::pair<std::string, logs::Json>>()> values;
  };
  std::optional<MlperfLog> mlperf_log = std::nullopt;
  // Writes a SavedModel of what was trained and returns its path; unset where --export_dir is refused.
  std::function<absl::StatusOr<std::string>(train::Estimator& estimator, const std::string& export_dir)> export_model =
      nullptr;
};

// Returns one of the results; there must be one of this name.
double MetricOf(const train::EvalResults& results, absl::string_view name);

// Trains and evaluates as the flags say, from where an earlier run in --model_dir ended. With --eval_only evaluates
// what was trained there, once; NotFound if nothing was. Exports at the end, if wanted. Results go to `results`, all
// else to the log. Cancelled, with everything saved, if a signal stopped the run; other errors say what to do.
absl::Status RunTask(const Config& config, const Task& task, std::ostream& results);

// Opens what was trained in --model_dir for prediction, on one device, without writing anything. `facts` are compared
// with those of its training.
absl::StatusOr<std::unique_ptr<train::Estimator>> OpenTrained(const Config& config, train::Model model,
                                                              std::vector<train::RunFact> facts = {});

}  // namespace official::run
