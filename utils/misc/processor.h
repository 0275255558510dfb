// The processors that the programs run on: those of x86-64-v3, for which all of the code is compiled (.bazelrc).
#pragma once

#include <cstdint>

namespace official::misc {

// The results of the instructions CPUID and XGETBV for a processor and its operating system; missing leaves are 0.
struct ProcessorFeatures {
  uint32_t leaf1_ecx = 0, leaf7_ebx = 0, extended_leaf1_ecx = 0;
  uint32_t enabled_states = 0;  // registers that the system saves: bit 1 SSE, bit 2 AVX
};

// Returns the features of this machine.
ProcessorFeatures ReadProcessorFeatures();

// Returns the first feature of x86-64-v3 that is missing, such as "AVX2"; nullptr if none is.
const char* MissingFeature(const ProcessorFeatures& features);

}  // namespace official::misc
