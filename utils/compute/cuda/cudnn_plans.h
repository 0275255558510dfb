// The plans that cuDNN has for a convolution: what is computed, as a graph of its graph API, and the engines that can
// compute it. They are found for a GPU, or without one for a GPU whose properties are known.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"

namespace official::compute {

// Owns a descriptor of the graph API.
class CudnnDescriptor {
 public:
  static absl::StatusOr<CudnnDescriptor> Make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t descriptor = nullptr;
    RETURN_IF_ERROR(CudaStatus(cudnnBackendCreateDescriptor(type, &descriptor), "cudnnBackendCreateDescriptor"));
    return CudnnDescriptor(descriptor);
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~CudnnDescriptor() {
    if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  template <typename T>
  absl::Status Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return SetAll(name, type, 1, &value);
  }
  template <size_t n>
  absl::Status SetInts(cudnnBackendAttributeName_t name, const std::array<int64_t, n>& values) {
    return SetAll(name, CUDNN_TYPE_INT64, n, values.data());
  }
  absl::Status SetDescriptor(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return SetAll(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  absl::Status SetAll(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                      const void* values) {
    return CudaStatus(cudnnBackendSetAttribute(descriptor_, name, type, n, values),
                      absl::StrCat("cudnnBackendSetAttribute ", static_cast<int>(name)));
  }
  absl::Status Finalize() { return CudaStatus(cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize"); }

 private:
  explicit CudnnDescriptor(cudnnBackendDescriptor_t descriptor) : descriptor_(descriptor) {}
  cudnnBackendDescriptor_t descriptor_;
};

// Unique ids of the tensors of a convolution.
enum ConvTensorId : int64_t { kImagesId = 1, kFiltersId, kOutputId };

// The tensor that is computed from the other two.
enum class ConvResult { kOutput, kImages, kFilters };

// A convolution, or one of its gradients, as cuDNN computes it: with the same padding on both sides of an axis.
struct CudnnConvolution {
  ConvResult result;
  DType dtype;
  // As they lie: [images, height, width, channels], [channels out, height, width, channels in].
  std::array<int64_t, 4> images, filters, output;
  std::array<int64_t, 2> padding, strides, dilations;  // of height and width
  bool tensor_cores;                                   // may be used; float32 is then computed in TF32
};

// A configuration of an engine that the convolution can run on, made ready.
struct ConvEngine {
  std::string name;
  CudnnDescriptor config, plan;
  int64_t workspace_bytes;
};

// The engines that are looked for.
struct EngineFilter {
  std::string name = "";  // if not empty, only the engine of this name
  size_t most = std::numeric_limits<size_t>::max();
  int most_compiled = 5;  // of those that are compiled when a plan is made, which takes a quarter of a second each
};

// What cuDNN has refused to do, and why.
struct CudnnRefusals {
  int count = 0;
  std::string first;

  void Add(const absl::Status& status) {
    if (++count == 1) first = std::string(status.message());
  }
};

// The graph of a convolution.
class ConvPlans {
 public:
  // For the GPU of `handle`, or if that is null for one with `properties`: a finalized descriptor of the type
  // DEVICEPROP, which must outlive this.
  static absl::StatusOr<ConvPlans> Make(cudnnHandle_t handle, const CudnnDescriptor* properties,
                                        const CudnnConvolution& c);

  // Returns engines that give the same bits in every run and do not lower the precision, those first that cuDNN
  // recommends. What is recommended twice is one engine. Adds what could not be compiled to `not_compiled`. Returns
  // Unimplemented if there is none, unless a name is looked for.
  absl::StatusOr<std::vector<ConvEngine>> Engines(const EngineFilter& filter, CudnnRefusals& not_compiled) const;

 private:
  ConvPlans(cudnnHandle_t handle, const CudnnDescriptor* properties, bool tensor_cores,
            std::vector<CudnnDescriptor> parts)
      : handle_(handle), properties_(properties), tensor_cores_(tensor_cores), parts_(std::move(parts)) {}
  const CudnnDescriptor& graph() const { return parts_.back(); }

  cudnnHandle_t handle_;
  const CudnnDescriptor* properties_;  // if there is no handle
  bool tensor_cores_;
  std::vector<CudnnDescriptor> parts_;  // the graph is the last
};

}  // namespace official::compute
