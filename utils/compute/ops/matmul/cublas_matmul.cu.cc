// cuBLASLt's matrices are column-major: a row-major matrix is to it the transposed one. So it is asked for
// y^T [n, m] = b^T [n, k] * a^T [k, m], whose columns are the rows of y, and the bias is one number per row of it.

#include "utils/compute/ops/matmul/cublas_matmul.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/ops/conv/bias.h"

namespace official::compute {
namespace {

// Names the call in the error.
#define CALL(expression) RETURN_IF_ERROR(CudaStatus((expression), #expression))

constexpr uint64_t kMaxWorkspace = uint64_t{32} << 20;  // what NVIDIA recommends for compute capability 9.0
constexpr uint32_t kAlignment = 64;                     // of every buffer
constexpr uintptr_t kWorkspaceAlignment = 256;          // what cuBLASLt wants
constexpr int kMaxCandidates = 16;

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

cudaDataType_t CudaTypeOf(DType dtype) {
  return dtype == DType::kFloat32 ? CUDA_R_32F : dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

}  // namespace

absl::StatusOr<std::shared_ptr<CublasMatMul>> CublasMatMul::Make(CudaDevice& device, const CublasMatMulSpec& spec) {
  const auto make = [&](bool adds_bias_later) -> absl::StatusOr<std::shared_ptr<CublasMatMul>> {
    std::shared_ptr<CublasMatMul> matmul(new CublasMatMul(spec, adds_bias_later));
    RETURN_IF_ERROR(matmul->Init(device));
    return matmul;
  };
  const auto matmul = make(/*adds_bias_later=*/false);
  // cuBLASLt may be unable to add the bias to a product that it can compute.
  return spec.has_bias && absl::IsUnimplemented(matmul.status()) ? make(/*adds_bias_later=*/true) : matmul;
}

CublasMatMul::~CublasMatMul() {
  if (matmul_ != nullptr) cublasLtMatmulDescDestroy(matmul_);
  for (const cublasLtMatrixLayout_t layout : {a_, b_, y_}) {
    if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
  }
}

int64_t CublasMatMul::scratch_bytes() const {
  return workspace_bytes_ == 0 ? 0 : static_cast<int64_t>(workspace_bytes_ + kWorkspaceAlignment);
}

template <typename T>
absl::Status CublasMatMul::Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  return CudaStatus(cublasLtMatmulDescSetAttribute(matmul_, attribute, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
}

absl::Status CublasMatMul::Init(CudaDevice& device) {
  ASSIGN_OR_RETURN(handle_, device.cublas_lt());
  stream_ = device.stream();
  const MatMulGeometry& g = spec_.geometry;
  const cudaDataType_t type = CudaTypeOf(spec_.dtype);
  const bool tf32 = spec_.dtype == DType::kFloat32 && device.allow_tf32();
  CALL(cublasLtMatmulDescCreate(&matmul_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // cuBLASLt's first matrix is b, its second a.
  RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (spec_.has_bias && !adds_bias_later_) {
    RETURN_IF_ERROR(
        Set(CUBLASLT_MATMUL_DESC_EPILOGUE, spec_.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS));
    // Only its alignment matters before the run.
    RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(uintptr_t{kAlignment})));
  }
  ASSIGN_OR_RETURN(a_, MakeLayout(type, g.batch, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k));
  ASSIGN_OR_RETURN(b_, MakeLayout(type, g.batch, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n));
  ASSIGN_OR_RETURN(y_, MakeLayout(CudaTypeOf(spec_.result), g.batch, g.m, g.n));
  return ChooseAlgorithm();
}

absl::Status CublasMatMul::ChooseAlgorithm() {
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

absl::Status CublasMatMul::Run(const void* a, const void* b, const void* bias, void* y, void* scratch) {
  const bool adds_bias = spec_.has_bias && !adds_bias_later_;
  if (adds_bias) RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  void* const workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch) + kWorkspaceAlignment - 1) /
                                                  kWorkspaceAlignment * kWorkspaceAlignment);
  const float zero = 0;
  RETURN_IF_ERROR(CudaStatus(cublasLtMatmul(handle_, matmul_, &spec_.scale, b, b_, a, a_, &zero, y, y_, y, y_,
                                            &algorithm_, workspace, workspace_bytes_, stream_),
                             "cublasLtMatmul"));
  if (!adds_bias_later_) return absl::OkStatus();
  const MatMulGeometry& g = spec_.geometry;
  return AddBias(stream_, {spec_.result, {g.batch, g.m, g.n}}, bias, spec_.relu, y);
}

}  // namespace official::compute
