// The largest values of a training step, in messages about its memory.
#pragma once

#include <cstdint>
#include <string>

#include "utils/compute/graph/graph.h"

namespace official::train {

// Returns the bytes by which the computed value that grows most does from `small` to `larger`, lowered graphs of one
// network for two numbers of examples: what runs them needs at least as much more. 0 if the two do not have the same
// nodes.
int64_t GrowthOfLargestValue(const compute::Graph& small, const compute::Graph& larger);

// Returns "; its largest values are float32[2048,112,112,64] of Conv2D, 6.6 GB, and ...": the two largest shapes among
// the values of a graph for `examples` examples, each with an op (or the name of a variable) that has it. The shapes
// are found from those in two smaller graphs of the same model, for two numbers of examples. Returns "" if the two do
// not have the same nodes.
std::string LargestValuesText(const compute::Graph& small, const compute::Graph& larger, int64_t small_examples,
                              int64_t larger_examples, double examples);

}  // namespace official::train
