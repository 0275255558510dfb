// The calls of cuDNN's graph API that the project makes: one convolution, or one of its two gradients, in plain loops.
// Attributes that are unknown, of the wrong type, missing or that contradict each other are refused as cuDNN's header
// and manual say.

#include <cudnn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/cuda_emulation/elements.h"
#include "utils/compute/cuda_emulation/library_algorithms.h"
#include "utils/compute/cuda_emulation/memory.h"
#include "utils/compute/cuda_emulation/stream_work.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace official::compute::cuda_emulation {
namespace {

// What descriptors of a type take.
struct Attribute {
  cudnnBackendDescriptorType_t owner;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t count;  // of elements
};

constexpr int64_t kNumCompiledConfigs = 7;
constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto kData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto kFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;

constexpr Attribute kAttributes[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1},
    {kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1},
    {kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1},
};

size_t SizeOfElement(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
    case CUDNN_TYPE_FLOAT:
      return 4;
    default:
      return 8;
  }
}

// A configuration of an engine: what its knobs are set to.
struct Knob {
  cudnnBackendKnobType_t type;
  int64_t value;
};
struct ConfigOf {
  cudnnBackendHeurMode_t mode;
  int64_t engine;
  std::vector<Knob> knobs;
  int64_t workspace;
  std::vector<cudnnBackendNumericalNote_t> notes = {};
  bool compiled_at_run_time = false;

  std::string Name() const {
    std::vector<Knob> sorted = knobs;
    std::sort(sorted.begin(), sorted.end(), [](const Knob& a, const Knob& b) { return a.type < b.type; });
    std::string name = absl::StrCat("engine ", engine);
    for (const Knob& k : sorted) {
      absl::StrAppend(&name, &k == sorted.data() ? ", knobs " : " ", static_cast<int>(k.type), "=", k.value);
    }
    return name;
  }
};

// Those of every operation, as recommended. Some are not what the caller may take, one is recommended twice, and some
// need a compiler when a plan is made.
const std::vector<ConfigOf>& Configs() {
  constexpr auto kTile = CUDNN_KNOB_TYPE_TILE_SIZE, kTileM = CUDNN_KNOB_TYPE_TILE_M, kStages = CUDNN_KNOB_TYPE_STAGES;
  static const auto* const configs = [] {
    auto* const all = new std::vector<ConfigOf>{
        {CUDNN_HEUR_MODE_A, 0, {}, 3000, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
        {CUDNN_HEUR_MODE_A, 6, {{kTile, 0}}, 2000, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}},
        {CUDNN_HEUR_MODE_A, 4, {{kStages, 3}, {kTile, 0}}, 1000},
        {CUDNN_HEUR_MODE_A, 4, {{kStages, 3}, {kTile, 1}}, 1500},
        {CUDNN_HEUR_MODE_A, 4, {{kTile, 0}, {kStages, 3}}, 1000},
        {CUDNN_HEUR_MODE_FALLBACK, 1, {}, 0},
        {CUDNN_HEUR_MODE_FALLBACK, 4, {{kTile, 1}, {kStages, 3}}, 1500},
    };
    for (int64_t i = 0; i < kNumCompiledConfigs; ++i) {
      all->insert(all->begin() + 2 + i,
                  {CUDNN_HEUR_MODE_A, 38, {{kTileM, i}}, 4000, {}, /*compiled_at_run_time=*/true});
    }
    return all;
  }();
  return *configs;
}

// The numbers of the configurations of the mode, in the order in which they are recommended now.
std::vector<int> Recommended(cudnnBackendHeurMode_t mode) {
  std::vector<int> numbers;
  for (size_t i = 0; i < Configs().size(); ++i) {
    if (Configs()[i].mode == mode) numbers.push_back(static_cast<int>(i));
  }
  if (TheAlgorithms().reversed) std::reverse(numbers.begin(), numbers.end());
  return numbers;
}

struct TensorOf {
  ElementType type;
  int64_t dims[4], strides[4];  // in the order n, c, h, w
  int64_t id, alignment;

  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t extent() const {
    int64_t last = 0;
    for (int i = 0; i < 4; ++i) last += (dims[i] - 1) * strides[i];
    return last + 1;
  }
  size_t bytes() const { return extent() * SizeOf(type); }
  int64_t At(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
  }
};
struct Convolution {
  int64_t before[2], after[2], dilation[2], stride[2];
};
struct OperationOf {
  cudnnBackendDescriptorType_t type;
  TensorOf x, w, y;
  Convolution convolution;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, std::vector<char>> attributes;
  // What it stands for, once it is finalized.
  TensorOf tensor;
  Convolution convolution;
  OperationOf operation;
  int config = -1;  // its number, also of an engine and a plan
  Knob knob = {};

  template <typename T>
  T Get(cudnnBackendAttributeName_t name, int64_t i = 0) const {
    T value;
    std::memcpy(&value, attributes.at(name).data() + i * sizeof(T), sizeof(T));
    return value;
  }
  const Descriptor& Part(cudnnBackendAttributeName_t name) const {
    return *static_cast<Descriptor*>(Get<cudnnBackendDescriptor_t>(name));
  }
};

cudnnStatus_t Refuse(const std::string& why) {
  std::fprintf(stderr, "emulated cuDNN: %s\n", why.c_str());
  return CUDNN_STATUS_BAD_PARAM;
}

const char* FinalizeTensor(Descriptor& d) {
  TensorOf& t = d.tensor;
  const auto type = d.Get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  t.type = type == CUDNN_DATA_FLOAT      ? ElementType::kFloat32
           : type == CUDNN_DATA_BFLOAT16 ? ElementType::kBFloat16
                                         : ElementType::kFloat16;
  for (int i = 0; i < 4; ++i) {
    t.dims[i] = d.Get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, i);
    t.strides[i] = d.Get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, i);
    if (t.dims[i] <= 0 || t.strides[i] <= 0) return "a tensor without elements";
  }
  t.id = d.Get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  t.alignment = d.Get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (t.alignment <= 0 || (t.alignment & (t.alignment - 1)) != 0) return "an alignment that is no power of two";
  return t.extent() == t.elements() ? nullptr : "a tensor with gaps";
}

const char* FinalizeConvolution(Descriptor& d) {
  if (d.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2) return "a convolution without two dimensions";
  if (d.Get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT) return "sums not in float32";
  if (d.Get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION) {
    return "a convolution with turned filters";
  }
  Convolution& c = d.convolution;
  for (int i = 0; i < 2; ++i) {
    c.before[i] = d.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
    c.after[i] = d.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i);
    c.dilation[i] = d.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
    c.stride[i] = d.Get<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
    if (c.before[i] < 0 || c.before[i] != c.after[i]) return "padding that differs between the sides";
    if (c.dilation[i] <= 0 || c.stride[i] <= 0) return "a dilation or stride below 1";
  }
  return nullptr;
}

const char* FinalizeOperation(Descriptor& d, cudnnBackendAttributeName_t x, cudnnBackendAttributeName_t w,
                              cudnnBackendAttributeName_t y, cudnnBackendAttributeName_t convolution,
                              cudnnBackendAttributeName_t alpha, cudnnBackendAttributeName_t beta) {
  OperationOf& op = d.operation;
  op = {d.type, d.Part(x).tensor, d.Part(w).tensor, d.Part(y).tensor, d.Part(convolution).convolution};
  if (d.Get<float>(alpha) != 1 || d.Get<float>(beta) != 0) return "a scaled result";
  if (op.x.type != op.w.type || op.x.type != op.y.type) return "tensors of different types";
  if (op.x.id == op.w.id || op.x.id == op.y.id || op.w.id == op.y.id) return "tensors of the same id";
  if (op.x.dims[0] != op.y.dims[0] || op.x.dims[1] != op.w.dims[1] || op.y.dims[1] != op.w.dims[0]) {
    return "batch or channels that do not fit";
  }
  const Convolution& c = op.convolution;
  for (int i = 0; i < 2; ++i) {
    const int64_t padded = op.x.dims[2 + i] + c.before[i] + c.after[i];
    const int64_t window = c.dilation[i] * (op.w.dims[2 + i] - 1) + 1;
    if (padded < window || op.y.dims[2 + i] != (padded - window) / c.stride[i] + 1) {
      return "an output of another size than the window's";
    }
  }
  return nullptr;
}

// What LibraryAlgorithms::convolutions has of it.
std::string TextOf(const OperationOf& op) {
  const auto dims = [](const TensorOf& t) {
    return absl::StrFormat("%dx%dx%dx%d", t.dims[0], t.dims[2], t.dims[3], t.dims[1]);
  };
  const auto pair = [](const int64_t(&values)[2]) { return absl::StrCat(values[0], "x", values[1]); };
  const char* const result = op.type == kForward ? "output" : op.type == kData ? "images" : "filters";
  const Convolution& c = op.convolution;
  const bool dilated = c.dilation[0] > 1 || c.dilation[1] > 1;
  return absl::StrCat(result, " ", dims(op.x), " * ", dims(op.w), ", padding ", pair(c.before), ", stride ",
                      pair(c.stride), dilated ? absl::StrCat(", dilation ", pair(c.dilation)) : "");
}

// Computes the operation: `x`, `w` and `y` are its tensors, one of which is the result.
void Compute(const OperationOf& op, void* x_data, void* w_data, void* y_data) {
  const TensorOf &x = op.x, &w = op.w, &y = op.y;
  const auto load = [](const TensorOf& t, const void* data) {
    std::vector<float> values(t.extent());
    for (size_t i = 0; i < values.size(); ++i) values[i] = LoadElement(t.type, data, static_cast<int64_t>(i));
    return values;
  };
  const TensorOf& result = op.type == kForward ? y : op.type == kData ? x : w;
  const std::vector<float> xs = op.type == kData ? std::vector<float>() : load(x, x_data);
  const std::vector<float> ws = op.type == kFilter ? std::vector<float>() : load(w, w_data);
  const std::vector<float> ys = op.type == kForward ? std::vector<float>() : load(y, y_data);
  std::vector<double> sums(result.extent());
  const Convolution& c = op.convolution;
  const int64_t channels = x.dims[1], x_step = x.strides[1], w_step = w.strides[1];
  for (int64_t n = 0; n < y.dims[0]; ++n) {
    for (int64_t i = 0; i < y.dims[2]; ++i) {
      for (int64_t j = 0; j < y.dims[3]; ++j) {
        for (int64_t k = 0; k < w.dims[2]; ++k) {
          const int64_t row = i * c.stride[0] - c.before[0] + k * c.dilation[0];
          if (row < 0 || row >= x.dims[2]) continue;
          for (int64_t l = 0; l < w.dims[3]; ++l) {
            const int64_t column = j * c.stride[1] - c.before[1] + l * c.dilation[1];
            if (column < 0 || column >= x.dims[3]) continue;
            const int64_t x_at = x.At(n, 0, row, column);
            for (int64_t o = 0; o < y.dims[1]; ++o) {
              const int64_t w_at = w.At(o, 0, k, l), y_at = y.At(n, o, i, j);
              if (op.type == kForward) {
                double sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int64_t q = 0; q < channels; ++q) {
                  sum += static_cast<double>(xs[x_at + q * x_step]) * ws[w_at + q * w_step];
                }
                sums[y_at] += sum;
              } else if (op.type == kData) {
                const double dy = ys[y_at];
                for (int64_t q = 0; q < channels; ++q) sums[x_at + q * x_step] += dy * ws[w_at + q * w_step];
              } else {
                const double dy = ys[y_at];
                for (int64_t q = 0; q < channels; ++q) sums[w_at + q * w_step] += dy * xs[x_at + q * x_step];
              }
            }
          }
        }
      }
    }
  }
  void* const to = op.type == kForward ? y_data : op.type == kData ? x_data : w_data;
  for (size_t i = 0; i < sums.size(); ++i) {
    StoreElement(result.type, static_cast<float>(sums[i]), to, static_cast<int64_t>(i));
  }
}

std::optional<std::string> Execute(const OperationOf& op, void* x, void* w, void* y, void* workspace,
                                   int64_t workspace_bytes) {
  const auto wrong_with = [](const char* what, const std::string& why) {
    return absl::StrFormat("cudnnBackendExecute, %s: %s", what, why);
  };
  if (workspace_bytes > 0) {
    if (auto wrong = CheckWrite(workspace, workspace_bytes)) return wrong_with("workspace", *wrong);
    std::memset(workspace, Poison(), workspace_bytes);
  }
  const auto check = [](bool result, const TensorOf& t, void* data) {
    return result ? CheckWrite(data, t.bytes()) : CheckRead(data, t.bytes());
  };
  if (auto wrong = check(op.type == kData, op.x, x)) return wrong_with("images", *wrong);
  if (auto wrong = check(op.type == kFilter, op.w, w)) return wrong_with("filters", *wrong);
  if (auto wrong = check(op.type == kForward, op.y, y)) return wrong_with("output", *wrong);
  Compute(op, x, w, y);
  return std::nullopt;
}

}  // namespace
}  // namespace official::compute::cuda_emulation

using namespace official::compute::cuda_emulation;  // NOLINT: all that follows is cuDNN's

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion() { return 1; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_NOT_SUPPORTED ? "not supported" : "bad parameter";
}
void cudnnGetLastErrorString(char* message, size_t size) {
  if (size > 0) *message = '\0';
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  auto* const d = new Descriptor;
  d->type = type;
  *descriptor = d;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  Descriptor& d = *static_cast<Descriptor*>(descriptor);
  if (d.finalized) return Refuse("a descriptor is changed after it was finalized");
  for (const Attribute& a : kAttributes) {
    if (a.owner != d.type || a.name != name) continue;
    if (a.type != type || a.count != count) return Refuse(absl::StrFormat("attribute %d of another type", name));
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      const Descriptor* const part = *static_cast<Descriptor* const*>(elements);
      if (part == nullptr || !part->finalized) return Refuse("a part that is not finalized");
    }
    const char* const bytes = static_cast<const char*>(elements);
    d.attributes[name].assign(bytes, bytes + count * SizeOfElement(type));
    return CUDNN_STATUS_SUCCESS;
  }
  return Refuse(absl::StrFormat("attribute %d is not one of descriptor type %d", name, d.type));
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& d = *static_cast<Descriptor*>(descriptor);
  for (const Attribute& a : kAttributes) {
    if (a.owner == d.type && !d.attributes.contains(a.name)) {
      return Refuse(absl::StrFormat("attribute %d is missing", a.name));
    }
  }
  const char* wrong = nullptr;
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      wrong = FinalizeTensor(d);
      break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      wrong = FinalizeConvolution(d);
      break;
    case kForward:
      wrong = FinalizeOperation(
          d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
      break;
    case kData:
      wrong = FinalizeOperation(
          d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
      break;
    case kFilter:
      wrong = FinalizeOperation(
          d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      d.operation = d.Part(CUDNN_ATTR_OPERATIONGRAPH_OPS).operation;
      NoteConvolution(TextOf(d.operation));
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      d.operation = d.Part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).operation;
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      const Descriptor& config = d.Part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
      d.operation = config.operation;
      d.config = config.config;
      if (Configs()[d.config].compiled_at_run_time && !TheAlgorithms().compiles) return CUDNN_STATUS_NOT_SUPPORTED;
      break;
    }
    default:
      break;
  }
  if (wrong != nullptr) return Refuse(wrong);
  d.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                       void* elements) {
  const Descriptor& d = *static_cast<const Descriptor*>(descriptor);
  if (!d.finalized) return Refuse("a descriptor is asked before it is finalized");
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR || d.type != CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) break;
      const std::vector<int> numbers = Recommended(d.Get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
      *count = static_cast<int64_t>(numbers.size());
      for (int64_t i = 0; i < std::min(*count, requested); ++i) {
        Descriptor& config = *static_cast<Descriptor**>(elements)[i];
        if (config.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return Refuse("no place for a configuration");
        config.operation = d.operation;
        config.config = numbers[i];
        config.finalized = true;
      }
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR || requested != 1 || d.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
        break;
      Descriptor& engine = **static_cast<Descriptor**>(elements);
      if (engine.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return Refuse("no place for an engine");
      engine.config = d.config;
      engine.finalized = true;
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: {
      if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR || d.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) break;
      const std::vector<Knob>& knobs = Configs()[d.config].knobs;
      *count = static_cast<int64_t>(knobs.size());
      for (int64_t i = 0; i < std::min(*count, requested); ++i) {
        Descriptor& choice = *static_cast<Descriptor**>(elements)[i];
        if (choice.type != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR) return Refuse("no place for a knob");
        choice.knob = knobs[i];
        choice.finalized = true;
      }
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      if (type != CUDNN_TYPE_KNOB_TYPE || requested != 1 || d.type != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR) break;
      *count = 1;
      *static_cast<cudnnBackendKnobType_t*>(elements) = d.knob.type;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
      if (type != CUDNN_TYPE_INT64 || requested != 1 || d.type != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR) break;
      *count = 1;
      *static_cast<int64_t*>(elements) = d.knob.value;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      if (type != CUDNN_TYPE_INT64 || requested != 1 || d.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) break;
      *count = 1;
      *static_cast<int64_t*>(elements) = Configs()[d.config].engine;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      if (type != CUDNN_TYPE_NUMERICAL_NOTE || d.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) break;
      const auto& notes = Configs()[d.config].notes;
      *count = static_cast<int64_t>(notes.size());
      std::copy_n(notes.begin(), std::min(*count, requested), static_cast<cudnnBackendNumericalNote_t*>(elements));
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      if (type != CUDNN_TYPE_BEHAVIOR_NOTE || d.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) break;
      *count = Configs()[d.config].compiled_at_run_time ? 1 : 0;
      if (*count > 0) *static_cast<cudnnBackendBehaviorNote_t*>(elements) = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      if (type != CUDNN_TYPE_INT64 || requested != 1 || d.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) break;
      *count = 1;
      *static_cast<int64_t*>(elements) = Configs()[d.config].workspace;
      return CUDNN_STATUS_SUCCESS;
    default:
      return Refuse(absl::StrFormat("attribute %d is not asked for", name));
  }
  return Refuse(absl::StrFormat("attribute %d is asked for with another type, or of another descriptor", name));
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_,
                                  cudnnBackendDescriptor_t variant_pack) {
  const Descriptor &plan = *static_cast<Descriptor*>(plan_), &pack = *static_cast<Descriptor*>(variant_pack);
  if (!plan.finalized || !pack.finalized || plan.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      pack.type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
    return Refuse("a plan or a pack that is not finalized");
  }
  const OperationOf& op = plan.operation;
  void* data[3] = {};
  const TensorOf* const tensors[3] = {&op.x, &op.w, &op.y};
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < 3; ++i) {
      if (pack.Get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) != tensors[t]->id) continue;
      data[t] = pack.Get<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    }
    if (data[t] == nullptr) return Refuse("a tensor without an address");
    if (!IsAligned(data[t], tensors[t]->alignment)) return Refuse("a tensor that is not aligned as promised");
  }
  void* const workspace = pack.Get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const ConfigOf& config = Configs()[plan.config];
  if (!IsAligned(workspace, 16)) return Refuse("a workspace that is not aligned");
  const cudaError_t given =
      GiveWork(handle->stream, WorkKind::kLibraryCall, [=, &config, x = data[0], w = data[1], y = data[2]] {
        NoteRun(config.Name());
        return Execute(op, x, w, y, workspace, config.workspace);
      });
  return given == cudaSuccess ? CUDNN_STATUS_SUCCESS : Refuse("the stream takes no work");
}
