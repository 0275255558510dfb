// CUDA kernels of matrix multiplication: cuBLASLt, which computes in float (in TF32 where the device allows it) and
// adds the bias and the ReLU as it stores the result.
//
// cuBLASLt's matrices are column-major: a row-major matrix is to it the transposed one. So it is asked for
// y^T [n, m] = b^T [n, k] * a^T [k, m], whose columns are the rows of y, and the bias is one number per row of it.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/kernels.h"
#include "utils/compute/ops/conv/bias.h"
#include "utils/compute/ops/matmul/geometry.h"

namespace official::compute {
namespace {

// Names the call in the error.
#define CALL(expression) RETURN_IF_ERROR(CudaStatus((expression), #expression))

constexpr uint64_t kMaxWorkspace = uint64_t{32} << 20;  // what NVIDIA recommends for compute capability 9.0
constexpr uint32_t kAlignment = 64;                     // of every buffer
constexpr uintptr_t kWorkspaceAlignment = 256;          // what cuBLASLt wants
constexpr int kMaxCandidates = 16;

// One matrix multiplication as cuBLASLt knows it.
class Plan {
 public:
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (matmul_ != nullptr) cublasLtMatmulDescDestroy(matmul_);
    for (const cublasLtMatrixLayout_t layout : {a_, b_, y_}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }

  absl::Status Init(CudaDevice& device, const MatMulGeometry& g, DType dtype, bool has_bias, bool relu);
  int64_t scratch_bytes() const {
    return workspace_bytes_ == 0 ? 0 : static_cast<int64_t>(workspace_bytes_ + kWorkspaceAlignment);
  }
  absl::Status Run(const void* a, const void* b, const void* bias, void* y, void* scratch);

 private:
  template <typename T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return CudaStatus(cublasLtMatmulDescSetAttribute(matmul_, attribute, &value, sizeof(value)),
                      "cublasLtMatmulDescSetAttribute");
  }
  absl::Status ChooseAlgorithm();

  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cublasLtMatmulDesc_t matmul_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, y_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
  size_t workspace_bytes_ = 0;
};

// A row-major matrix, of each element of the batch, as the column-major one with as many rows as that has columns.
absl::StatusOr<cublasLtMatrixLayout_t> MakeLayout(cudaDataType_t type, int64_t batch, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  CALL(cublasLtMatrixLayoutCreate(&layout, type, columns, rows, columns));
  const auto count = static_cast<int32_t>(batch);
  const int64_t stride = rows * columns;
  CALL(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
  CALL(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
  return layout;
}

absl::Status Plan::Init(CudaDevice& device, const MatMulGeometry& g, DType dtype, bool has_bias, bool relu) {
  ASSIGN_OR_RETURN(handle_, device.cublas_lt());
  stream_ = device.stream();
  const cudaDataType_t type = dtype == DType::kFloat32    ? CUDA_R_32F
                              : dtype == DType::kBFloat16 ? CUDA_R_16BF
                                                          : CUDA_R_16F;
  const bool tf32 = dtype == DType::kFloat32 && device.allow_tf32();
  CALL(cublasLtMatmulDescCreate(&matmul_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // cuBLASLt's first matrix is b, its second a.
  RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (has_bias) {
    RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS));
    // Only its alignment matters before the run.
    RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(uintptr_t{kAlignment})));
  }
  ASSIGN_OR_RETURN(a_, MakeLayout(type, g.batch, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k));
  ASSIGN_OR_RETURN(b_, MakeLayout(type, g.batch, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n));
  ASSIGN_OR_RETURN(y_, MakeLayout(type, g.batch, g.m, g.n));
  return ChooseAlgorithm();
}

absl::Status Plan::ChooseAlgorithm() {
  cublasLtMatmulPreference_t preference = nullptr;
  CALL(cublasLtMatmulPreferenceCreate(&preference));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(&cublasLtMatmulPreferenceDestroy)>
      owner(preference, cublasLtMatmulPreferenceDestroy);
  CALL(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kMaxWorkspace,
                                            sizeof(kMaxWorkspace)));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    CALL(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &kAlignment, sizeof(kAlignment)));
  }
  // Parts of a sum are added up in float, whatever the result's type.
  constexpr uint32_t kReduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  CALL(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &kReduction,
                                            sizeof(kReduction)));
  cublasLtMatmulHeuristicResult_t candidates[kMaxCandidates] = {};
  int num_candidates = 0;
  const cublasStatus_t found = cublasLtMatmulAlgoGetHeuristic(handle_, matmul_, b_, a_, y_, y_, preference,
                                                              kMaxCandidates, candidates, &num_candidates);
  if (found != CUBLAS_STATUS_NOT_SUPPORTED) {
    RETURN_IF_ERROR(CudaStatus(found, "cublasLtMatmulAlgoGetHeuristic"));
  }
  for (int i = 0; i < num_candidates; ++i) {
    cublasLtMatmulHeuristicResult_t checked = {};
    if (candidates[i].state != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoCheck(handle_, matmul_, b_, a_, y_, y_, &candidates[i].algo, &checked) !=
            CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > kMaxWorkspace) {
      continue;
    }
    algorithm_ = candidates[i].algo;
    workspace_bytes_ = checked.workspaceSize;
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat("cuBLASLt ", cublasLtGetVersion(), " has no algorithm for this device (",
                                               num_candidates, " tried)"));
}

absl::Status Plan::Run(const void* a, const void* b, const void* bias, void* y, void* scratch) {
  if (bias != nullptr) RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  void* const workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch) + kWorkspaceAlignment - 1) /
                                                  kWorkspaceAlignment * kWorkspaceAlignment);
  const float one = 1, zero = 0;
  return CudaStatus(cublasLtMatmul(handle_, matmul_, &one, b, b_, a, a_, &zero, y, y_, y, y_, &algorithm_, workspace,
                                   workspace_bytes_, stream_),
                    "cublasLtMatmul");
}

absl::StatusOr<Kernel> MakeMatMul(const KernelSpec& spec) {
  const MatMulGeometry g = MatMulGeometryOf(spec.node);
  CudaDevice& device = CudaDeviceOf(spec);
  const bool has_bias = spec.node.num_inputs() == 3;
  const int64_t output_bytes = spec.output(0).num_bytes();
  if (output_bytes == 0) {
    return Kernel{[](const KernelArgs&) { return absl::OkStatus(); }};
  }
  if (g.k == 0) {
    if (has_bias) return absl::UnimplementedError("FusedMatMul of no columns has no kernel for cuda; use MatMul");
    return Kernel{[output_bytes, stream = device.stream()](const KernelArgs& args) {
      return CudaStatus(cudaMemsetAsync(args.outputs[0], 0, output_bytes, stream), "cudaMemsetAsync");
    }};
  }
  auto plan = std::make_shared<Plan>();
  const bool relu = has_bias && spec.attrs().Get<std::string>("activation") == "Relu";
  const DType dtype = spec.input(0).dtype;
  const absl::Status with_bias = plan->Init(device, g, dtype, has_bias, relu);
  // cuBLASLt may be unable to add the bias to a product that it can compute.
  const bool adds_bias_later = has_bias && absl::IsUnimplemented(with_bias);
  if (adds_bias_later) plan = std::make_shared<Plan>();
  const absl::Status status =
      adds_bias_later ? plan->Init(device, g, dtype, /*has_bias=*/false, /*relu=*/false) : with_bias;
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(spec.node.op().name, " of ", spec.input(0).ToString(), " and ",
                                                    spec.input(1).ToString(), ": ", status.message()));
  }
  Kernel kernel;
  kernel.scratch_bytes = plan->scratch_bytes();
  kernel.run = [=, type = spec.output(0), stream = device.stream()](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(plan->Run(args.inputs[0], args.inputs[1], has_bias && !adds_bias_later ? args.inputs[2] : nullptr,
                              args.outputs[0], args.scratch));
    return adds_bias_later ? AddBias(stream, type, args.inputs[2], relu, args.outputs[0]) : absl::OkStatus();
  };
  return kernel;
}

}  // namespace

void RegisterMatMulCuda(KernelRegistry& kernels) {
  for (const char* op : {"FusedMatMul", "MatMul"}) {
    kernels.Add({.op = op, .device_kind = "cuda", .dtypes = StorageTypes(), .make = MakeMatMul});
  }
}

}  // namespace official::compute
