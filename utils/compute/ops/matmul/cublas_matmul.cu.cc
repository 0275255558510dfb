// cuBLASLt's matrices are column-major: a row-major matrix is to it the transposed one. So it is asked for
// y^T [n, m] = b^T [n, k] * a^T [k, m], whose columns are the rows of y, and the bias is one number per row of it.

#include "utils/compute/ops/matmul/cublas_matmul.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/fastest.h"
#include "utils/compute/ops/conv/bias.h"

namespace official::compute {
namespace {

// Names the call in the error.
#define CALL(expression) RETURN_IF_ERROR(CudaStatus((expression), #expression))

constexpr uint64_t kMaxWorkspace = uint64_t{32} << 20;  // what NVIDIA recommends for compute capability 9.0
constexpr uint32_t kAlignment = 64;                     // of every buffer
constexpr uintptr_t kWorkspaceAlignment = 256;          // what cuBLASLt wants
constexpr int kMaxCandidates = 16;
// Products of fewer multiplications are over sooner than the next kernel is launched, whatever the algorithm, and there
// are many of them: their algorithms are not timed.
constexpr int64_t kMinTimed = int64_t{1} << 22;

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

// Returns "algorithm 66, tile 20, ...": all that can be set of an algorithm, as far as cuBLASLt tells it.
std::string NameOf(const cublasLtMatmulAlgo_t& algorithm) {
  std::string name;
  const auto add = [&]<typename T>(const char* what, cublasLtMatmulAlgoConfigAttributes_t attribute, T value) {
    if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), nullptr) ==
        CUBLAS_STATUS_SUCCESS) {
      absl::StrAppend(&name, name.empty() ? "" : ", ", what, " ", value);
    }
  };
  add("algorithm", CUBLASLT_ALGO_CONFIG_ID, int32_t{});
  add("tile", CUBLASLT_ALGO_CONFIG_TILE_ID, uint32_t{});
  add("stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, uint32_t{});
  add("split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t{});
  add("reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, uint32_t{});
  add("swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, uint32_t{});
  add("option", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, uint32_t{});
  add("inner shape", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, uint16_t{});
  add("cluster shape", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, uint16_t{});
  return name;
}

}  // namespace

absl::StatusOr<std::shared_ptr<CublasMatMul>> CublasMatMul::Make(const KernelSpec& kernel,
                                                                 const CublasMatMulSpec& spec) {
  const auto make = [&](bool has_epilogue) -> absl::StatusOr<std::shared_ptr<CublasMatMul>> {
    std::shared_ptr<CublasMatMul> matmul(new CublasMatMul(spec, has_epilogue));
    RETURN_IF_ERROR(matmul->Init(kernel));
    return matmul;
  };
  const bool wants_epilogue = spec.has_bias || spec.has_bias_gradient;
  const auto matmul = make(wants_epilogue);
  // cuBLASLt may be unable to do this with a product that it can compute.
  return wants_epilogue && absl::IsUnimplemented(matmul.status()) ? make(/*has_epilogue=*/false) : matmul;
}

CublasMatMul::~CublasMatMul() {
  if (matmul_ != nullptr) cublasLtMatmulDescDestroy(matmul_);
  for (const cublasLtMatrixLayout_t layout : {a_, b_, y_}) {
    if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
  }
}

int64_t CublasMatMul::ScratchBytes(size_t workspace_bytes) const {
  const int64_t product = workspace_bytes == 0 ? 0 : static_cast<int64_t>(workspace_bytes + kWorkspaceAlignment);
  // One after the other.
  return spec_.has_bias_gradient && !has_epilogue_ ? std::max(product, BiasGradientScratchBytes(b_type())) : product;
}

template <typename T>
absl::Status CublasMatMul::Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  return CudaStatus(cublasLtMatmulDescSetAttribute(matmul_, attribute, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
}

absl::Status CublasMatMul::Init(const KernelSpec& kernel) {
  CudaDevice& device = CudaDeviceOf(kernel);
  ASSIGN_OR_RETURN(handle_, device.cublas_lt());
  stream_ = device.stream();
  const MatMulGeometry& g = spec_.geometry;
  const cudaDataType_t type = CudaTypeOf(spec_.dtype);
  const bool tf32 = spec_.dtype == DType::kFloat32 && device.allow_tf32();
  CALL(cublasLtMatmulDescCreate(&matmul_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // cuBLASLt's first matrix is b, its second a.
  RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (has_epilogue_) {
    RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, spec_.has_bias_gradient ? CUBLASLT_EPILOGUE_BGRADA
                                                       : spec_.relu            ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                                               : CUBLASLT_EPILOGUE_BIAS));
    // Only its alignment matters before the run.
    RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(uintptr_t{kAlignment})));
  }
  ASSIGN_OR_RETURN(a_, MakeLayout(type, g.batch, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k));
  ASSIGN_OR_RETURN(b_, MakeLayout(type, g.batch, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n));
  ASSIGN_OR_RETURN(y_, MakeLayout(CudaTypeOf(spec_.result), g.batch, g.m, g.n));
  return ChooseAlgorithm(kernel);
}

std::string CublasMatMul::KeyOf(const CudaDevice& device) const {
  const MatMulGeometry& g = spec_.geometry;
  const auto matrix = [&](int64_t rows, int64_t columns, bool transposed) {
    return absl::StrCat(DTypeName(spec_.dtype), "[", rows, ",", columns, "]", transposed ? "^T" : "");
  };
  const bool tf32 = spec_.dtype == DType::kFloat32 && device.allow_tf32();
  const bool adds_bias = spec_.has_bias && has_epilogue_;
  return absl::StrCat("cuBLASLt ", cublasLtGetVersion(), " on ", device.Hardware(), ": ", g.batch, " x ",
                      g.transpose_a ? matrix(g.k, g.m, true) : matrix(g.m, g.k, false), " * ",
                      g.transpose_b ? matrix(g.n, g.k, true) : matrix(g.k, g.n, false), " in ", DTypeName(spec_.result),
                      adds_bias ? ", bias" : "", adds_bias && spec_.relu ? ", ReLU" : "",
                      has_epilogue_ && spec_.has_bias_gradient ? ", bias gradient" : "", tf32 ? ", TF32" : "");
}

absl::StatusOr<std::vector<CublasMatMul::Algorithm>> CublasMatMul::Algorithms() {
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
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < num_candidates; ++i) {
    cublasLtMatmulHeuristicResult_t checked = {};
    if (candidates[i].state != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoCheck(handle_, matmul_, b_, a_, y_, y_, &candidates[i].algo, &checked) !=
            CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > kMaxWorkspace) {
      continue;
    }
    std::string name = NameOf(candidates[i].algo);
    const auto same = [&](const Algorithm& other) { return other.name == name; };
    if (std::any_of(algorithms.begin(), algorithms.end(), same)) continue;
    algorithms.push_back({std::move(name), candidates[i].algo, checked.workspaceSize});
  }
  if (!algorithms.empty()) return algorithms;
  return absl::UnimplementedError(absl::StrCat("cuBLASLt ", cublasLtGetVersion(), " has no algorithm for this device (",
                                               num_candidates, " tried)"));
}

// The number of the one that takes the least time for numbers that are all zero.
absl::StatusOr<int> CublasMatMul::TimeAlgorithms(CudaDevice& device, const std::vector<Algorithm>& algorithms) {
  const MatMulGeometry& g = spec_.geometry;
  size_t workspace_bytes = 0;
  for (const Algorithm& a : algorithms) workspace_bytes = std::max(workspace_bytes, a.workspace_bytes);
  ASSIGN_OR_RETURN(const auto a, device.Allocate(g.batch * g.m * g.k * SizeOf(spec_.dtype)));
  ASSIGN_OR_RETURN(const auto b, device.Allocate(g.batch * g.k * g.n * SizeOf(spec_.dtype)));
  ASSIGN_OR_RETURN(const auto bias, device.Allocate(g.n * SizeOf(spec_.dtype)));
  ASSIGN_OR_RETURN(const auto y, device.Allocate(g.batch * g.m * g.n * SizeOf(spec_.result)));
  ASSIGN_OR_RETURN(const auto scratch, device.Allocate(ScratchBytes(workspace_bytes)));
  return FastestOnStream(stream_, static_cast<int>(algorithms.size()), [&](int i) {
    algorithm_ = algorithms[i];
    return Run(a.get(), b.get(), bias.get(), y.get(), scratch.get(), bias.get());
  });
}

// The name of the fastest; of the first if there is no memory to time them in.
absl::StatusOr<std::string> CublasMatMul::FastestAlgorithm(CudaDevice& device,
                                                           const std::vector<Algorithm>& algorithms) {
  if (algorithms.size() == 1) return algorithms[0].name;
  const absl::StatusOr<int> fastest = TimeAlgorithms(device, algorithms);
  if (fastest.ok()) return algorithms[*fastest].name;
  if (!absl::IsResourceExhausted(fastest.status())) return fastest.status();
  device.Warn(absl::StrCat("there is not enough memory to time the algorithms of matrix products on ", device.name(),
                           ": cuBLASLt's first choice is taken, which may be slower; try a smaller batch"));
  return algorithms[0].name;
}

absl::Status CublasMatMul::ChooseAlgorithm(const KernelSpec& kernel) {
  ASSIGN_OR_RETURN(const std::vector<Algorithm> algorithms, Algorithms());
  auto chosen = algorithms.begin();
  const MatMulGeometry& g = spec_.geometry;
  if (kernel.choices != nullptr && g.batch * g.m * g.n * g.k >= kMinTimed) {
    CudaDevice& device = CudaDeviceOf(kernel);
    const std::string key = KeyOf(device);
    const auto choose = [&] { return FastestAlgorithm(device, algorithms); };
    const auto find = [&](const std::string& name) {
      return std::find_if(algorithms.begin(), algorithms.end(), [&](const Algorithm& a) { return a.name == name; });
    };
    ASSIGN_OR_RETURN(const std::string kept, kernel.choices->FindOrChoose(key, choose));
    chosen = find(kept);
    if (chosen == algorithms.end()) {
      kernel.choices->Forget(key);
      ASSIGN_OR_RETURN(const std::string name, kernel.choices->FindOrChoose(key, choose));
      chosen = find(name);
      if (chosen == algorithms.end()) {
        return absl::InternalError(absl::StrCat("cuBLASLt's algorithm ", name, " is no longer available"));
      }
    }
  }
  algorithm_ = *chosen;
  return absl::OkStatus();
}

absl::Status CublasMatMul::Run(const void* a, const void* b, const void* bias, void* y, void* scratch,
                               void* bias_gradient) {
  if (has_epilogue_) {
    RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, spec_.has_bias_gradient ? bias_gradient : bias));
  }
  void* const workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch) + kWorkspaceAlignment - 1) /
                                                  kWorkspaceAlignment * kWorkspaceAlignment);
  const float zero = 0;
  RETURN_IF_ERROR(CudaStatus(cublasLtMatmul(handle_, matmul_, &spec_.scale, b, b_, a, a_, &zero, y, y_, y, y_,
                                            &algorithm_.configuration, workspace, algorithm_.workspace_bytes, stream_),
                             "cublasLtMatmul"));
  if (has_epilogue_) return absl::OkStatus();
  if (spec_.has_bias_gradient) return BiasGradient(stream_, b_type(), b, bias_gradient, scratch);
  if (!spec_.has_bias) return absl::OkStatus();
  const MatMulGeometry& g = spec_.geometry;
  return AddBias(stream_, {spec_.result, {g.batch, g.m, g.n}}, bias, spec_.relu, y);
}

}  // namespace official::compute
