#include "utils/distribute/placement.h"

#include <algorithm>

namespace official::distribute {

std::vector<int> PlaceVariables(Placement placement, const std::vector<int64_t>& num_bytes, int num_servers) {
  std::vector<int> servers;
  std::vector<int64_t> loads(num_servers);
  for (size_t i = 0; i < num_bytes.size(); ++i) {
    const auto lightest = static_cast<int>(std::min_element(loads.begin(), loads.end()) - loads.begin());
    servers.push_back(placement == Placement::kGreedy ? lightest : static_cast<int>(i) % num_servers);
    loads[servers.back()] += num_bytes[i];
  }
  return servers;
}

}  // namespace official::distribute
