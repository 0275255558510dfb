// This file runs on processors on which the rest of the program does not: the BUILD file has it compiled for any
// x86-64. It must not use what other files compile, too (inline functions, templates): the linker keeps one copy of
// those.
#include "utils/misc/processor.h"

#include <cpuid.h>

namespace official::misc {
namespace {

struct Feature {
  const char* name;
  uint32_t ProcessorFeatures::*word;
  int bit;
};

constexpr uint32_t kSavesSseAndAvx = 6;

// In the order in which processors got them: the first that is missing says most.
constexpr Feature kFeatures[] = {
    {"AVX", &ProcessorFeatures::leaf1_ecx, 28},   {"F16C", &ProcessorFeatures::leaf1_ecx, 29},
    {"AVX2", &ProcessorFeatures::leaf7_ebx, 5},   {"FMA", &ProcessorFeatures::leaf1_ecx, 12},
    {"BMI1", &ProcessorFeatures::leaf7_ebx, 3},   {"BMI2", &ProcessorFeatures::leaf7_ebx, 8},
    {"MOVBE", &ProcessorFeatures::leaf1_ecx, 22}, {"LZCNT", &ProcessorFeatures::extended_leaf1_ecx, 5},
};

}  // namespace

ProcessorFeatures ReadProcessorFeatures() {
  ProcessorFeatures features;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) features.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) features.leaf7_ebx = ebx;
  if (__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) != 0) features.extended_leaf1_ecx = ecx;
  if ((features.leaf1_ecx & bit_OSXSAVE) != 0) {
    __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    features.enabled_states = eax;
  }
  return features;
}

const char* MissingFeature(const ProcessorFeatures& features) {
  for (const Feature& feature : kFeatures) {
    if ((features.*feature.word >> feature.bit & 1) == 0) return feature.name;
  }
  const bool saved = (features.enabled_states & kSavesSseAndAvx) == kSavesSseAndAvx;
  return saved ? nullptr : "operating system that saves AVX registers";
}

}  // namespace official::misc
