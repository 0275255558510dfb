// Counts of a training step on GPUs, taken from its graph: nodes, bytes and floating-point operations.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/program/layout_planner.h"
#include "utils/train/step.h"

namespace official::step_graphs {

// A GPU as its data sheet describes it.
struct GpuRates {
  double bytes_per_second = 0;
  double flops_float32 = 0;  // without TF32
  double flops_half = 0;     // dense products of bfloat16 and float16
};
inline constexpr GpuRates kH200 = {.bytes_per_second = 4.8e12, .flops_float32 = 67e12, .flops_half = 989e12};

struct StepCount {
  int nodes = 0;     // that a kernel computes
  int products = 0;  // of them, products of matrices and convolutions
  // The bytes of the inputs that nodes read and of the results that they write. Views are no nodes. Of a table that is
  // read by ids, as many rows count as there are ids.
  int64_t bytes = 0;
  // The bytes of each feed, each variable and slot that the step uses, each gradient of a variable, and each value that
  // the forward pass computes from feeds and the backward pass reads, all of them once.
  int64_t roofline_bytes = 0;
  double flops = 0;  // of matrix products, convolutions and attention
  // The time of the nodes one after the other, each as long as its bytes or its operations need, whichever is longer.
  double node_seconds = 0;
  // The time of roofline_bytes or of all operations, whichever is longer.
  double roofline_seconds = 0;
};

// Counts the nodes of the whole step of `built`, whose loss is the first fetch, as a program for GPUs has them.
absl::StatusOr<StepCount> CountStep(const train::BuiltModel& built, const GpuRates& gpu);

}  // namespace official::step_graphs
