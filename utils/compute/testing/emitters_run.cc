// A test that links this fails if it has not run, on a device of kind "pjrt", every op in every type that the files of
// OP_TEST_EMITTERS in the environment, separated by commas, write in StableHLO. A run of some test cases alone, as
// named by its arguments, is not held to it.

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>

#include "absl/strings/str_split.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/testing/recorded_kernels.h"

namespace official::compute::testing {
namespace {

class EmittersRun : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testRunEnded(const Catch::TestRunStats& stats) override {
    const char* const names = std::getenv("OP_TEST_EMITTERS");
    if (names == nullptr || m_config->hasTestFilters() || !stats.totals.assertions.allOk()) return;
    const std::set<std::string> files = absl::StrSplit(names, ',');
    int num_missing = 0;
    std::set<std::string> found;
    for (const HloEmitter* emitter : AllHloEmitters()) {
      if (files.count(emitter->file) == 0) continue;
      found.insert(emitter->file);
      for (const DType dtype : emitter->dtypes) {
        if (HasRun(emitter->op, kPjrtKind, dtype)) continue;
        std::cerr << emitter->file << ": no test case runs " << emitter->op.text() << " in " << DTypeName(dtype)
                  << " on a device of kind " << kPjrtKind << "\n";
        ++num_missing;
      }
    }
    for (const std::string& file : files) {
      if (found.count(file) > 0) continue;
      std::cerr << "OP_TEST_EMITTERS: " << file << " registers no emitter\n";
      ++num_missing;
    }
    if (num_missing > 0) std::exit(1);
  }
};

CATCH_REGISTER_LISTENER(EmittersRun)

}  // namespace
}  // namespace official::compute::testing
