// An Exchange for workers that are threads of one process: what a coordinated job in one process and tests run several
// workers with.
#pragma once

#include <memory>
#include <vector>

#include "utils/distribute/exchange.h"

namespace official::distribute {

// Returns the exchange of each worker. They may be used, and destroyed, on different threads.
std::vector<std::unique_ptr<Exchange>> MakeMemoryExchanges(int num_workers);

// Ends the process of a worker without which the job goes on: it is lost to the others, and its own calls are
// Cancelled.
void Lose(Exchange& worker);
// Starts the worker again, which is lost, and returns the exchange of its new process. `worker` is any exchange of it.
std::unique_ptr<Exchange> StartAgain(Exchange& worker);

}  // namespace official::distribute
