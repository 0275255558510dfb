// The calls of cuBLASLt that the project makes: matrix products in plain loops. Arguments that cuBLASLt's header does
// not allow are refused, and so is what the project does not use.

#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "utils/compute/cuda_emulation/elements.h"
#include "utils/compute/cuda_emulation/library_algorithms.h"
#include "utils/compute/cuda_emulation/memory.h"
#include "utils/compute/cuda_emulation/stream_work.h"

using official::compute::cuda_emulation::CheckRead;
using official::compute::cuda_emulation::CheckWrite;
using official::compute::cuda_emulation::ElementType;
using official::compute::cuda_emulation::GiveWork;
using official::compute::cuda_emulation::IsAligned;
using official::compute::cuda_emulation::LoadElement;
using official::compute::cuda_emulation::NoteRun;
using official::compute::cuda_emulation::Poison;
using official::compute::cuda_emulation::SizeOf;
using official::compute::cuda_emulation::StoreElement;
using official::compute::cuda_emulation::TheAlgorithms;
using official::compute::cuda_emulation::WorkKind;

struct cublasLtContext {};
struct EmulatedMatmulDesc {
  cublasComputeType_t compute;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;

  // One number per row of the result: added to it, or the sums of A's rows.
  bool has_bias() const { return epilogue != CUBLASLT_EPILOGUE_DEFAULT && !has_bias_gradient(); }
  bool has_bias_gradient() const { return epilogue == CUBLASLT_EPILOGUE_BGRADA; }
};
struct EmulatedMatrixLayout {
  cudaDataType_t type;
  int64_t rows, columns, leading_dimension;
  int32_t batch = 1;
  int64_t stride = 0;  // of the matrices of a batch
};
struct EmulatedMatmulPreference {
  uint64_t max_workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace {

constexpr size_t kWorkspace = 1000, kWorkspaceAlignment = 256;

// What the emulation keeps in the opaque algorithm.
struct Algorithm {
  uint32_t alignments[4];
  int32_t id;
  uint32_t tile;
  uint32_t made;  // kMade

  std::string Name() const {
    return absl::StrFormat(
        "algorithm %d, tile %u, stages 3, split 1, reduction 0, swizzle 0, option 0, inner shape 0, cluster shape 2",
        id, tile);
  }
};
constexpr uint32_t kMade = 0x6d6c7473;
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

cublasStatus_t Refuse(const char* why) {
  std::fprintf(stderr, "emulated cuBLASLt: %s\n", why);
  return CUBLAS_STATUS_INVALID_VALUE;
}

template <typename T>
cublasStatus_t Take(const void* value, size_t size, T& to) {
  if (value == nullptr || size != sizeof(to)) return Refuse("an attribute of the wrong size");
  std::memcpy(&to, value, sizeof(to));
  return CUBLAS_STATUS_SUCCESS;
}

ElementType TypeOf(cudaDataType_t type) {
  return type == CUDA_R_32F    ? ElementType::kFloat32
         : type == CUDA_R_16BF ? ElementType::kBFloat16
                               : ElementType::kFloat16;
}

// The number of elements from the first to the last one of a batch of matrices.
int64_t Extent(const EmulatedMatrixLayout& m) {
  return (m.batch - 1) * m.stride + (m.columns - 1) * m.leading_dimension + m.rows;
}
size_t Bytes(const EmulatedMatrixLayout& m) { return Extent(m) * SizeOf(TypeOf(m.type)); }

// A matrix of the batch as floats, [outer][inner], so that the sums of products run along inner.
std::vector<float> Load(const EmulatedMatrixLayout& m, const void* data, int64_t at, bool inner_is_row) {
  std::vector<float> result(m.rows * m.columns);
  for (int64_t c = 0; c < m.columns; ++c) {
    for (int64_t r = 0; r < m.rows; ++r) {
      result[inner_is_row ? c * m.rows + r : r * m.columns + c] =
          LoadElement(TypeOf(m.type), data, at * m.stride + c * m.leading_dimension + r);
    }
  }
  return result;
}

bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const char *const x = static_cast<const char*>(a), *const y = static_cast<const char*>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

// What is wrong with the shapes and types of a product; nullptr if all is well.
const char* CheckProduct(const EmulatedMatmulDesc& desc, const EmulatedMatrixLayout& a, const EmulatedMatrixLayout& b,
                         const EmulatedMatrixLayout& c, const EmulatedMatrixLayout& d) {
  const bool turn_a = desc.transpose_a == CUBLAS_OP_T, turn_b = desc.transpose_b == CUBLAS_OP_T;
  if ((turn_a ? a.columns : a.rows) != d.rows || (turn_b ? b.rows : b.columns) != d.columns ||
      (turn_a ? a.rows : a.columns) != (turn_b ? b.columns : b.rows)) {
    return "the shapes of the matrices do not fit";
  }
  if (c.rows != d.rows || c.columns != d.columns || c.type != d.type) return "C is not like D";
  for (const EmulatedMatrixLayout* const m : {&a, &b, &c, &d}) {
    if (m->rows <= 0 || m->columns <= 0) return "an empty matrix";
    if (m->leading_dimension < m->rows) return "a leading dimension below the number of rows";
    if (m->batch != d.batch) return "batches of different sizes";
  }
  if (d.batch > 1 && d.stride < Extent({d.type, d.rows, d.columns, d.leading_dimension})) {
    return "the results of a batch overlap";
  }
  if (a.type != b.type) return "A and B have different types";
  if (d.type != a.type && d.type != CUDA_R_32F) return "no products of this type";
  if (desc.has_bias_gradient() && (d.batch > 1 || d.type != a.type)) return "no gradient of a bias beside this product";
  if (desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F) return "TF32 is for float32";
  return nullptr;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 1; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "invalid value";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return Refuse("a scale that is not in float32");
  *desc = new EmulatedMatmulDesc{.compute = compute};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t size) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Take(value, size, desc->transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Take(value, size, desc->transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Take(value, size, desc->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Take(value, size, desc->bias);
  }
  return Refuse("an unknown attribute of a product");
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t leading_dimension) {
  *layout =
      new EmulatedMatrixLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading_dimension};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t size) {
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Take(value, size, layout->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Take(value, size, layout->stride);
  }
  return Refuse("an unknown attribute of a layout");
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new EmulatedMatmulPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* value,
                                                    size_t size) {
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Take(value, size, preference->max_workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: {
      uint32_t mask = 0;
      return Take(value, size, mask);
    }
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Take(value, size, preference->alignments[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Take(value, size, preference->alignments[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Take(value, size, preference->alignments[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Take(value, size, preference->alignments[3]);
  }
  return Refuse("an unknown attribute of a preference");
}

// One of the results is one that the caller must skip, and one is there twice. A bias is not added to products of one
// column, nor is its gradient summed, as if no algorithm could: the caller then does that.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  *count = 0;
  if (const char* const wrong = CheckProduct(*desc, *a, *b, *c, *d)) return Refuse(wrong);
  if (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    if (!IsAligned(desc->bias, 16)) return Refuse("a bias that is not aligned");
    if (d->columns == 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (preference->max_workspace < kWorkspace) return CUBLAS_STATUS_NOT_SUPPORTED;
  struct Result {
    int32_t id;
    uint32_t tile;
    cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
  };
  std::vector<Result> all = {{7, 15, CUBLAS_STATUS_NOT_SUPPORTED}, {7, 20}, {66, 20}, {7, 20}};
  if (TheAlgorithms().reversed) std::reverse(all.begin(), all.end());
  if (most == 1) std::erase_if(all, [](const Result& r) { return r.state != CUBLAS_STATUS_SUCCESS; });
  for (; *count < std::min(most, static_cast<int>(all.size())); ++*count) {
    const Result& from = all[*count];
    Algorithm algorithm = {.alignments = {}, .id = from.id, .tile = from.tile, .made = kMade};
    std::copy_n(preference->alignments, 4, algorithm.alignments);
    cublasLtMatmulHeuristicResult_t& result = results[*count] = {};
    std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
    result.workspaceSize = kWorkspace;
    result.state = from.state;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm_,
                                                    cublasLtMatmulAlgoConfigAttributes_t name, void* value, size_t size,
                                                    size_t* written) {
  Algorithm algorithm;
  std::memcpy(&algorithm, algorithm_, sizeof(algorithm));
  if (algorithm.made != kMade) return Refuse("an algorithm that no heuristic gave");
  const auto give = [&](const auto& what) {
    if (value == nullptr || size != sizeof(what)) return Refuse("an attribute of an algorithm of the wrong size");
    std::memcpy(value, &what, sizeof(what));
    if (written != nullptr) *written = sizeof(what);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (name) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return give(algorithm.id);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return give(algorithm.tile);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return give(int32_t{1});
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
      return give(uint32_t{0});
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return give(uint32_t{3});
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
      return give(uint16_t{0});
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return give(uint16_t{2});
  }
  return Refuse("an unknown attribute of an algorithm");
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  if (const char* const wrong = CheckProduct(*desc, *a, *b, *c, *d)) return Refuse(wrong);
  result->algo = *algorithm;
  result->workspaceSize = kWorkspace;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc_, const void* alpha_, const void* a,
                              cublasLtMatrixLayout_t a_layout_, const void* b, cublasLtMatrixLayout_t b_layout_,
                              const void* beta_, const void* c, cublasLtMatrixLayout_t c_layout_, void* d,
                              cublasLtMatrixLayout_t d_layout_, const cublasLtMatmulAlgo_t* algorithm_, void* workspace,
                              size_t workspace_size, cudaStream_t stream) {
  // The caller may change or free these as soon as the call returns.
  const EmulatedMatmulDesc desc = *desc_;
  const EmulatedMatrixLayout a_layout = *a_layout_, b_layout = *b_layout_, d_layout = *d_layout_;
  const float alpha = *static_cast<const float*>(alpha_), beta = *static_cast<const float*>(beta_);
  Algorithm algorithm;
  std::memcpy(&algorithm, algorithm_, sizeof(algorithm));
  if (const char* const wrong = CheckProduct(desc, a_layout, b_layout, *c_layout_, d_layout)) return Refuse(wrong);
  if (algorithm.made != kMade) return Refuse("an algorithm that no heuristic gave");
  if (beta != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  const void* const matrices[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (!IsAligned(matrices[i], algorithm.alignments[i])) return Refuse("a matrix that is not aligned as promised");
  }
  if (workspace_size < kWorkspace || !IsAligned(workspace, kWorkspaceAlignment)) {
    return Refuse("the workspace is too small or not aligned");
  }
  if (Overlap(d, Bytes(d_layout), a, Bytes(a_layout)) || Overlap(d, Bytes(d_layout), b, Bytes(b_layout))) {
    return Refuse("the result overlaps a factor");
  }
  const cudaError_t given = GiveWork(stream, WorkKind::kLibraryCall, [=]() -> std::optional<std::string> {
    NoteRun(algorithm.Name());
    const ElementType type = TypeOf(d_layout.type);
    const auto wrong_with = [](const char* what, const std::string& why) {
      return absl::StrFormat("cublasLtMatmul, %s: %s", what, why);
    };
    if (auto wrong = CheckWrite(workspace, workspace_size)) return wrong_with("workspace", *wrong);
    std::memset(workspace, Poison(), workspace_size);
    if (auto wrong = CheckRead(a, Bytes(a_layout))) return wrong_with("A", *wrong);
    if (auto wrong = CheckRead(b, Bytes(b_layout))) return wrong_with("B", *wrong);
    if (desc.has_bias()) {
      if (auto wrong = CheckRead(desc.bias, d_layout.rows * SizeOf(type))) return wrong_with("bias", *wrong);
    }
    if (auto wrong = CheckWrite(d, Bytes(d_layout))) return wrong_with("D", *wrong);
    void* const bias_gradient = const_cast<void*>(desc.bias);
    if (desc.has_bias_gradient()) {
      if (auto wrong = CheckWrite(bias_gradient, d_layout.rows * SizeOf(type))) {
        return wrong_with("bias gradient", *wrong);
      }
    }
    const int64_t m = d_layout.rows, n = d_layout.columns;
    const bool turn_a = desc.transpose_a == CUBLAS_OP_T, turn_b = desc.transpose_b == CUBLAS_OP_T;
    const int64_t k = turn_a ? a_layout.rows : a_layout.columns;
    for (int64_t q = 0; q < d_layout.batch; ++q) {
      const std::vector<float> x = Load(a_layout, a, q, turn_a), y = Load(b_layout, b, q, !turn_b);
      for (int64_t i = 0; desc.has_bias_gradient() && i < m; ++i) {
        StoreElement(type, std::accumulate(x.begin() + i * k, x.begin() + (i + 1) * k, 0.0f), bias_gradient, i);
      }
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < m; ++i) {
          double sum = 0;
          const float *const row = x.data() + i * k, *const column = y.data() + j * k;
#pragma omp simd reduction(+ : sum)
          for (int64_t l = 0; l < k; ++l) sum += static_cast<double>(row[l]) * column[l];
          float value = alpha * static_cast<float>(sum);
          if (desc.has_bias()) value += LoadElement(type, desc.bias, i);
          if (desc.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS && value < 0) value = 0;
          StoreElement(type, value, d, q * d_layout.stride + j * d_layout.leading_dimension + i);
        }
      }
    }
    return std::nullopt;
  });
  return given == cudaSuccess ? CUBLAS_STATUS_SUCCESS : Refuse("the stream takes no work");
}
