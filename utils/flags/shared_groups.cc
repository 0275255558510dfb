#include "utils/flags/shared_groups.h"

#include "utils/compute/core/check.h"
#include "utils/flags/base.h"
#include "utils/flags/benchmark.h"
#include "utils/flags/cluster.h"
#include "utils/flags/device.h"
#include "utils/flags/image.h"
#include "utils/flags/performance.h"

namespace official::flags {

std::vector<FlagGroup> SharedGroups() {
  return {BaseFlags(), PerformanceFlags(), ClusterFlags(), ImageFlags(), BenchmarkFlags(), DeviceFlags()};
}

FlagSpec SharedFlag(absl::string_view name) {
  FlagSpec found;
  for (const FlagGroup& group : SharedGroups()) {
    for (const FlagSpec& spec : group.flags) {
      if (spec.name == name) found = spec;
    }
  }
  OFFICIAL_CHECK(found.name == name) << "no shared flag is called " << name;
  return found;
}

}  // namespace official::flags
