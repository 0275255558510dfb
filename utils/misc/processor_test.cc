#include "utils/misc/processor.h"

#include <catch2/catch.hpp>
#include <string>

namespace official::misc {
namespace {

using Catch::Matchers::Contains;

// CPUID of an Intel Core i7-4770 (Haswell, 2013) and of a Core i7-860 (Nehalem, 2009), on Linux.
constexpr ProcessorFeatures kHaswell = {
    .leaf1_ecx = 0x7ffafbff, .leaf7_ebx = 0x000027ab, .extended_leaf1_ecx = 0x21, .enabled_states = 7};
constexpr ProcessorFeatures kNehalem = {.leaf1_ecx = 0x0098e3fd, .extended_leaf1_ecx = 1};

TEST_CASE("x86-64-v3 processors have all that is needed") {
  CHECK(MissingFeature(kHaswell) == nullptr);
  // These tests are compiled for them.
  CHECK(MissingFeature(ReadProcessorFeatures()) == nullptr);
}

TEST_CASE("The feature that an older processor does not have is named") {
  CHECK(MissingFeature(kNehalem) == std::string("AVX"));
  ProcessorFeatures ivy_bridge = kHaswell;
  ivy_bridge.leaf1_ecx &= ~(1u << 12 | 1u << 22);  // FMA, MOVBE
  ivy_bridge.leaf7_ebx = 0x281;                    // FSGSBASE, SMEP, ERMS
  CHECK(MissingFeature(ivy_bridge) == std::string("AVX2"));
  ProcessorFeatures no_lzcnt = kHaswell;
  no_lzcnt.extended_leaf1_ecx = 1;
  CHECK(MissingFeature(no_lzcnt) == std::string("LZCNT"));
}

TEST_CASE("A system that does not save the registers is reported") {
  ProcessorFeatures features = kHaswell;
  features.enabled_states = 3;
  CHECK_THAT(MissingFeature(features), Contains("operating system"));
}

}  // namespace
}  // namespace official::misc
