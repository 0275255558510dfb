// Matrix multiplication by cuBLASLt, which computes in float (in TF32 if the device allows it) and adds the bias and
// the ReLU as it stores the result, or sums the gradient of a bias as it reads a factor. It serves the kernels of
// several ops. Only for CUDA code.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/matmul/geometry.h"

namespace official::compute {

struct CublasMatMulSpec {
  MatMulGeometry geometry;              // no size is 0
  DType dtype;                          // type of a, b and the bias: float32, bfloat16 or half
  DType result;                         // type of y: the same, or float32 without a bias
  bool has_bias = false, relu = false;  // relu: only with a bias
  bool has_bias_gradient = false;       // the sum of b's rows, too; not with a batch, a bias or a transposed b
  float scale = 1;                      // factor of the product; 1 with a bias
};

class CublasMatMul {
 public:
  // For the device of `kernel`, whose choices decide on the algorithm of a large product. Returns Unimplemented if
  // cuBLASLt has no algorithm for it.
  static absl::StatusOr<std::shared_ptr<CublasMatMul>> Make(const KernelSpec& kernel, const CublasMatMulSpec& spec);
  CublasMatMul(const CublasMatMul&) = delete;
  CublasMatMul& operator=(const CublasMatMul&) = delete;
  ~CublasMatMul();

  int64_t scratch_bytes() const { return ScratchBytes(algorithm_.workspace_bytes); }
  // Gives the work to the stream. All matrices, the bias and the gradient of one are aligned to 64 bytes.
  absl::Status Run(const void* a, const void* b, const void* bias, void* y, void* scratch,
                   void* bias_gradient = nullptr);

 private:
  struct Algorithm {
    std::string name;
    cublasLtMatmulAlgo_t configuration;
    size_t workspace_bytes;
  };

  CublasMatMul(const CublasMatMulSpec& spec, bool has_epilogue) : spec_(spec), has_epilogue_(has_epilogue) {}
  absl::Status Init(const KernelSpec& kernel);
  int64_t ScratchBytes(size_t workspace_bytes) const;
  TensorType b_type() const { return {spec_.dtype, {spec_.geometry.k, spec_.geometry.n}}; }
  template <typename T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value);
  // What the times of the algorithms depend on.
  std::string KeyOf(const CudaDevice& device) const;
  // The algorithms that cuBLASLt recommends, best first.
  absl::StatusOr<std::vector<Algorithm>> Algorithms();
  absl::StatusOr<std::string> FastestAlgorithm(CudaDevice& device, const std::vector<Algorithm>& algorithms);
  absl::StatusOr<int> TimeAlgorithms(CudaDevice& device, const std::vector<Algorithm>& algorithms);
  absl::Status ChooseAlgorithm(const KernelSpec& kernel);

  const CublasMatMulSpec spec_;
  const bool has_epilogue_;  // cuBLASLt adds the bias, or sums its gradient; else a kernel of our own does
  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cublasLtMatmulDesc_t matmul_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, y_ = nullptr;
  Algorithm algorithm_ = {};
};

}  // namespace official::compute
