// Losses of a replica, divided so that the sum over all replicas is the loss of the global batch. They are for
// functions of replicas (replica_context.h), in whose graphs an error sticks.
#pragma once

#include <cstdint>
#include <optional>

#include "utils/compute/graph/graph.h"

namespace official::distribute {

struct AverageLoss {
  compute::Value sample_weight = {};              // see AlignSampleWeight; invalid: 1
  std::optional<int64_t> global_batch_size = {};  // unset: the first dimension of per_example_loss times the replicas
};

// Returns sum(per_example_loss * sample_weight) / global_batch_size, a scalar; 0, with gradients of zeros, for a
// global batch of size 0. The graph fails with InvalidArgument for a scalar per_example_loss, a negative batch and the
// errors of AlignSampleWeight. Elements of all dimensions are summed: average over those of an example first. Source:
// tf.nn.compute_average_loss.
compute::Value ComputeAverageLoss(compute::Value per_example_loss, const AverageLoss& options = {});

// Returns sum(regularization_loss) / num_replicas, a scalar. Source: tf.nn.scale_regularization_loss.
compute::Value ScaleRegularizationLoss(compute::Value regularization_loss);

}  // namespace official::distribute
