#include "utils/train/worker_agreement.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/logs/events.h"

namespace official::train {

absl::StatusOr<WorkerAgreement::Agreed> WorkerAgreement::Agree(bool save_is_due) {
  Agreed agreed{.interruption = interruption_(), .save_is_due = save_is_due, .late_workers = false};
  if (!strategy_.has_other_workers()) return agreed;
  const float seconds = SecondsOfWork();
  std::string own = {static_cast<char>(agreed.interruption), static_cast<char>(save_is_due),
                     static_cast<char>(strategy_.HasLateWorkers())};
  own.append(reinterpret_cast<const char*>(&seconds), sizeof seconds);
  ASSIGN_OR_RETURN(const std::vector<std::string> all, strategy_.GatherBytes(own));
  for (size_t w = 0; w < all.size(); ++w) {
    if (all[w].size() != own.size()) {
      return absl::DataLossError(
          absl::StrCat(strategy_.NameOfWorker(static_cast<int>(w)), " has not said whether it is to stop"));
    }
    const auto wanted = static_cast<Interruption>(all[w][0]);
    if (wanted == Interruption::kStop) stopped_by_.push_back(static_cast<int>(w));
    agreed.interruption = std::max(agreed.interruption, wanted);
  }
  agreed.save_is_due = all[0][1] != 0;
  agreed.late_workers = all[0][2] != 0;
  agreed_ = StragglerWatch::Clock::now();
  waited_seconds_ = strategy_.SecondsOfWaiting();
  if (strategy_.is_chief()) LogStraggler(all);
  return agreed;
}

float WorkerAgreement::SecondsOfWork() const {
  if (!agreed_) return 0;
  const double passed = std::chrono::duration<double>(StragglerWatch::Clock::now() - *agreed_).count();
  const double worked = std::max(0.0, passed - (strategy_.SecondsOfWaiting() - waited_seconds_));
  return static_cast<float>(worked / strategy_.num_local_replicas());
}

void WorkerAgreement::LogStraggler(const std::vector<std::string>& all) {
  std::vector<float> seconds(all.size());
  for (size_t w = 0; w < all.size(); ++w) {
    std::memcpy(&seconds[w], all[w].data() + all[w].size() - sizeof(float), sizeof(float));
  }
  const std::optional<Straggler> straggler = straggler_watch_.Add(seconds, *agreed_);
  if (!straggler) return;
  const std::string name = strategy_.NameOfWorker(straggler->worker);
  logs::LogEvent("straggler",
                 absl::StrFormat("%s keeps the others waiting: it computes for %.4g ms a step and replica, the others "
                                 "for %.4g ms",
                                 name, 1e3 * straggler->seconds, 1e3 * straggler->others_seconds),
                 {{"worker", name},
                  {"ms_per_step", 1e3 * straggler->seconds},
                  {"ms_per_step_of_others", 1e3 * straggler->others_seconds}});
}

absl::Status WorkerAgreement::TakeRequestOfChief(logs::StepRequest& request) const {
  if (!strategy_.has_other_workers()) return absl::OkStatus();
  const auto flag = [](bool wanted) { return wanted ? '1' : '0'; };
  ASSIGN_OR_RETURN(const std::string sent,
                   strategy_.FromChief(std::string{flag(request.loss), flag(request.tensors), flag(request.trace),
                                                   flag(request.event_trace)}));
  if (sent.size() != 4) return absl::DataLossError("the chief has not sent what it wants to see of the step");
  request = {.loss = sent[0] == '1', .tensors = sent[1] == '1', .trace = sent[2] == '1', .event_trace = sent[3] == '1'};
  return absl::OkStatus();
}

}  // namespace official::train
