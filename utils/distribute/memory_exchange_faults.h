// Faults of the workers of MakeMemoryExchanges, for tests: their processes end, and are started again.
#pragma once

#include <memory>

#include "utils/distribute/exchange.h"

namespace official::distribute {

// Ends the process of a worker without which the job goes on: it is lost to the others, and its own calls are
// Cancelled.
void Lose(Exchange& worker);
// Starts the worker again, which is lost, and returns the exchange of its new process. `worker` is any exchange of it.
std::unique_ptr<Exchange> StartAgain(Exchange& worker);

}  // namespace official::distribute
