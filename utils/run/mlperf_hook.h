// MLPerf's log of a run (utils/logs/mlperf_log.h) as a hook.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/logs/hook.h"
#include "utils/logs/json.h"
#include "utils/logs/mlperf_log.h"

namespace official::run {

class MlperfHook : public logs::Hook {
 public:
  using Values = std::vector<std::pair<std::string, logs::Json>>;

  // Checks that the file can be written and starts the clock of the run, of which loading the data is a part.
  // `benchmark` is the name of the model, such as "ncf"; `metric` that of the evaluation result which is its accuracy.
  static absl::StatusOr<std::unique_ptr<MlperfHook>> Open(const std::string& path, const std::string& benchmark,
                                                          const std::string& metric);

  // Sets what the log says of the model and its data, in addition to what it says of every run.
  void Describe(Values values) { values_ = std::move(values); }

  absl::Status BeginRun(const logs::RunStart& start) override;
  absl::Status BeginRound(const logs::RoundInfo& round) override;
  absl::Status EndRound(const logs::RoundInfo& round) override;
  absl::Status BeginEvaluation(int64_t epoch) override;
  absl::Status EndEvaluation(int64_t epoch, absl::Span<const std::pair<std::string, double>> results) override;
  absl::Status EndRun(bool success) override;

 private:
  MlperfHook(std::unique_ptr<logs::MlperfLog> log, std::string metric)
      : log_(std::move(log)), metric_(std::move(metric)) {}
  absl::Status Write(const Values& values);

  const std::unique_ptr<logs::MlperfLog> log_;
  const std::string metric_;
  Values values_;
};

}  // namespace official::run
