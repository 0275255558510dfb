// An Exchange for workers that are threads of one process: what a coordinated job in one process and tests run several
// workers with.
#pragma once

#include <memory>
#include <vector>

#include "utils/distribute/exchange.h"

namespace official::distribute {

// Returns the exchange of each worker. They may be used, and destroyed, on different threads.
std::vector<std::unique_ptr<Exchange>> MakeMemoryExchanges(int num_workers);

}  // namespace official::distribute
