// Which processors the programs run on: those of x86-64-v3, for which all of the code is compiled (.bazelrc).
#pragma once

#include <cstdint>

namespace official::misc {

// What the instructions CPUID and XGETBV say about a processor and its operating system; leaves that are missing are 0.
struct ProcessorFeatures {
  uint32_t leaf1_ecx = 0, leaf7_ebx = 0, extended_leaf1_ecx = 0;
  uint32_t enabled_states = 0;  // registers that the system saves: bit 1 SSE, bit 2 AVX
};

// Of this machine.
ProcessorFeatures ReadProcessorFeatures();

// The first feature of x86-64-v3 that is missing, such as "AVX2"; nullptr if none is.
const char* MissingFeature(const ProcessorFeatures& features);

}  // namespace official::misc
