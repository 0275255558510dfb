// A convolution, or one of its gradients, by cuDNN.
#pragma once

#include <memory>

#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cudnn_plans.h"
#include "utils/compute/ops/conv/geometry.h"

namespace official::compute {

class CudnnConv {
 public:
  // Makes the convolution of a kernel of `spec`. Chooses the algorithm among those of cuDNN's list that the device
  // accepts, that give the same bits in every run and that compute float32 in float32, or in TF32 if the device allows
  // it: the fastest if spec.choices can keep the choice, else the first. No dimension may be 0. Returns Unimplemented
  // if cuDNN has none.
  static absl::StatusOr<std::shared_ptr<const CudnnConv>> Make(const KernelSpec& spec, const ConvGeometry& geometry,
                                                               ConvResult result);
  ~CudnnConv();

  int64_t scratch_bytes() const;
  // Runs on images [N, H, W, C], filters [KH, KW, C, O] and output [N, H', W', O]; that of `result` is written, the
  // others are read. It only gives work to the device's stream.
  absl::Status Run(const void* images, const void* filters, const void* output, void* scratch) const;

 private:
  struct Plan;
  explicit CudnnConv(std::unique_ptr<Plan> plan);
  std::unique_ptr<Plan> plan_;
};

}  // namespace official::compute
