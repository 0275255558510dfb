#include "utils/logs/profile_hook.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/chrome_trace.h"
#include "utils/logs/events.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/logs/op_table.h"

namespace official::logs {
namespace {

int64_t Microseconds(Seconds seconds) { return std::llround(1e6 * seconds.count()); }

class ProfileHook : public Hook {
 public:
  explicit ProfileHook(ProfileOptions options) : options_(std::move(options)), table_(options_.own_kernels) {}

  StepRequest BeforeStep(int64_t next_step, TimePoint now) override {
    start_ = now;
    return {.trace = next_step >= options_.first_step && next_step <= options_.last_step};
  }

  absl::Status AfterStep(const StepInfo& step) override {
    const bool wanted = step.global_step >= options_.first_step && step.global_step <= options_.last_step;
    if (wanted && !step.trace.empty()) Add(step);
    return step.global_step >= options_.last_step && num_steps_ > 0 ? Write() : absl::OkStatus();
  }

  absl::Status EndRun(bool) override {
    if (num_steps_ > 0) return Write();
    if (!written_) {
      LOG(WARNING) << "nothing is profiled: the run had no step from " << options_.first_step << " to "
                   << options_.last_step;
    }
    return absl::OkStatus();
  }

 private:
  void Add(const StepInfo& step) {
    const DeviceTrace& trace = step.trace[0];
    if (num_steps_ == 0) first_step_ = step.global_step;
    last_step_ = step.global_step;
    ++num_steps_;
    table_.Add(trace);
    const int64_t wait_us = Microseconds(step.data_wait);
    wait_us_ += wait_us;
    step_us_ += wait_us + Microseconds(step.time - start_);
    device_.device = trace.device;
    input_.events.push_back({.name = absl::StrCat("wait for the data of step ", step.global_step),
                             .op = "DataWait",
                             .start_us = (trace.events.empty() ? 0 : trace.events[0].start_us) - wait_us,
                             .duration_us = wait_us});
    const size_t room = kMaxTraceEvents - device_.events.size();
    const auto kept = static_cast<std::ptrdiff_t>(std::min(room, trace.events.size()));
    left_out_ += trace.events.size() - kept;
    device_.events.insert(device_.events.end(), trace.events.begin(), trace.events.begin() + kept);
  }

  absl::Status Write() {
    const std::string path = files::JoinPath(
        options_.model_dir, absl::StrCat("profile-", options_.first_step, "-", options_.last_step, ".json"));
    RETURN_IF_ERROR(WriteChromeTrace(path, std::vector<DeviceTrace>{device_, input_}));
    Log(path);
    if (left_out_ > 0) {
      LOG(WARNING) << path << " has the first " << kMaxTraceEvents << " ops; " << left_out_ << " are left out";
    }
    num_steps_ = 0;
    written_ = true;
    device_.events.clear();
    return absl::OkStatus();
  }

  void Log(const std::string& path) const {
    const std::vector<OpRow> rows = table_.Rows();
    const auto steps = static_cast<double>(num_steps_);
    size_t op = 2, result = 6;
    int64_t sum_us = 0;
    for (const OpRow& row : rows) {
      op = std::max(op, row.op.size());
      result = std::max(result, row.result.size());
      if (absl::StartsWith(row.op, "AllReduce")) sum_us += row.us;
    }
    const auto all_us = static_cast<double>(std::max<int64_t>(1, step_us_));
    const int64_t other_us = table_.us() - sum_us, between_us = std::max<int64_t>(0, step_us_ - wait_us_ - table_.us());
    const auto percent = [&](int64_t us) { return 100 * static_cast<double>(us) / all_us; };
    std::string text = absl::StrFormat(
        "profile of steps %d to %d on %s: %d steps of %.4g ms, if each op is timed\n"
        "of the time: waits for data %.1f%%, sums over devices %.1f%%, other ops %.1f%%, between ops %.1f%%\n"
        "%6s %6s %9s %8s %7s  %-*s  %-*s  %s",
        first_step_, last_step_, device_.device, num_steps_, 1e-3 * all_us / steps, percent(wait_us_), percent(sum_us),
        percent(other_us), percent(between_us), "share", "calls", "ms/step", "GFLOP/s", "GB/s", op, "op", result,
        "result", "algorithm");
    Json::Array ops;
    for (const OpRow& row : rows) {
      const double ms = 1e-3 * static_cast<double>(row.us) / steps;
      const double ns = 1e3 * static_cast<double>(std::max<int64_t>(1, row.us));
      const double gflops = row.flops / ns, gbytes = static_cast<double>(row.bytes) / ns;
      absl::StrAppendFormat(&text, "\n%5.1f%% %6d %9.3f %8s %7s  %-*s  %-*s  %s", percent(row.us), row.count, ms,
                            row.flops > 0 ? absl::StrFormat("%.1f", gflops) : "-",
                            row.bytes > 0 ? absl::StrFormat("%.1f", gbytes) : "-", op, row.op, result, row.result,
                            row.algorithm);
      ops.push_back(Json::Object{{"op", row.op},
                                 {"result", row.result},
                                 {"algorithm", row.algorithm},
                                 {"calls", row.count},
                                 {"ms_per_step", ms},
                                 {"share", 0.01 * percent(row.us)},
                                 {"gflops_per_sec", row.flops > 0 ? Json(gflops) : Json()},
                                 {"gbytes_per_sec", row.bytes > 0 ? Json(gbytes) : Json()}});
    }
    absl::StrAppend(&text, "\nas a timeline, for chrome://tracing or Perfetto: ", path);
    LogEvent("profile", text,
             {{"device", device_.device},
              {"first_step", first_step_},
              {"last_step", last_step_},
              {"ms_per_step", 1e-3 * all_us / steps},
              {"data_wait_share", 0.01 * percent(wait_us_)},
              {"all_reduce_share", 0.01 * percent(sum_us)},
              {"other_ops_share", 0.01 * percent(other_us)},
              {"between_ops_share", 0.01 * percent(between_us)},
              {"path", path},
              {"ops", std::move(ops)}});
  }

  const ProfileOptions options_;
  OpTable table_;
  DeviceTrace device_;
  DeviceTrace input_ = {.device = "input"};
  TimePoint start_{};                       // of the step, when it had its data
  int64_t num_steps_ = 0;                   // that are timed and not yet written
  int64_t first_step_ = 0, last_step_ = 0;  // of these
  int64_t step_us_ = 0, wait_us_ = 0;       // of these
  bool written_ = false;
  size_t left_out_ = 0;  // ops that are not in the trace
};

}  // namespace

std::unique_ptr<Hook> MakeProfileHook(ProfileOptions options) {
  return std::make_unique<ProfileHook>(std::move(options));
}

}  // namespace official::logs
