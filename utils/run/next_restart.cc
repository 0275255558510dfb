#include "utils/run/next_restart.h"

#include <algorithm>
#include <vector>

namespace official::run {

std::optional<Restart> NextRestart(distribute::Exchange& exchange, const train::Estimator* estimator, bool has_trained,
                                   const std::optional<Restart>& before) {
  // Those that will not be there: they are lost, or were asked to stop, after which the state was saved.
  std::vector<int> gone = exchange.Lost();
  const bool was_lost = !gone.empty();
  bool takes_late = false;
  if (estimator != nullptr) {
    takes_late = estimator->stopped_for_late_worker();
    for (const int worker : estimator->stopped_by()) gone.push_back(exchange.NumberOf(worker));
  }
  if (gone.empty() && !takes_late) return std::nullopt;
  const auto is_gone = [&gone](int worker) { return std::find(gone.begin(), gone.end(), worker) != gone.end(); };
  // The chief was asked to stop, and with it the run. If it is lost, it may be as to this worker only.
  if (is_gone(0) && !was_lost) return std::nullopt;
  Restart next = {.count = before ? before->count + 1 : 1, .workers = exchange.Late()};
  for (int w = 0; w < exchange.num_workers(); ++w) {
    const int number = exchange.NumberOf(w);
    if (w == exchange.worker() || !is_gone(number)) next.workers.push_back(number);
  }
  std::sort(next.workers.begin(), next.workers.end());
  next.workers.erase(std::unique(next.workers.begin(), next.workers.end()), next.workers.end());
  // Where they lose each other again and again before they train, each time is later, and at some time the last.
  next.in_vain = has_trained || !before ? 0 : before->in_vain + 1;
  constexpr int kMostInVain = 20;
  if (next.in_vain > kMostInVain) return std::nullopt;
  return next;
}

}  // namespace official::run
