// cuDNN's graph API, with one operation. Images are NHWC. Filters are HWIO outside and OHWI for cuDNN: turned around in
// scratch memory at each run, which costs little beside the convolution. cuDNN's padding is the same on both sides of
// an axis; what one side has more is put around the images in scratch memory.

#include "utils/compute/ops/conv/cudnn_conv.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/fastest.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/nvrtc.h"

namespace official::compute {
namespace {

// Names the call in the error.
#define CALL(expression) RETURN_IF_ERROR(CudaStatus((expression), #expression))

constexpr int kThreads = 256;
constexpr int kTile = 32, kTileRows = kThreads / kTile;  // of a transposition
constexpr int64_t kMaxWorkspace = int64_t{1} << 30;      // bytes
constexpr size_t kAll = std::numeric_limits<size_t>::max();
constexpr int kMaxCompiled = 5;      // of the engines that are timed: compiling one takes a quarter of a second
constexpr int64_t kAlignment = 256;  // of what cuDNN gets in scratch memory

// Owns a descriptor of the graph API.
class Descriptor {
 public:
  static absl::StatusOr<Descriptor> Make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t descriptor = nullptr;
    CALL(cudnnBackendCreateDescriptor(type, &descriptor));
    return Descriptor(descriptor);
  }
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
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
  absl::Status SetDescriptor(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return SetAll(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  absl::Status SetAll(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                      const void* values) {
    return CudaStatus(cudnnBackendSetAttribute(descriptor_, name, type, n, values),
                      absl::StrCat("cudnnBackendSetAttribute ", static_cast<int>(name)));
  }
  absl::Status Finalize() { return CudaStatus(cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize"); }

 private:
  explicit Descriptor(cudnnBackendDescriptor_t descriptor) : descriptor_(descriptor) {}
  cudnnBackendDescriptor_t descriptor_;
};

// The names that one of the three operations has for its attributes.
struct Operation {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t images, filters, output, convolution, alpha, beta;
};
Operation OperationOf(ConvResult result) {
  switch (result) {
    case ConvResult::kOutput:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvResult::kImages:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvResult::kFilters:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

// Unique ids of the tensors.
enum : int64_t { kImagesId = 1, kFiltersId, kOutputId };

// A tensor that lies as [n, h, w, c]; cuDNN names dimensions in the order n, c, h, w whatever lies where.
absl::StatusOr<Descriptor> MakeTensor(int64_t id, DType dtype, int64_t n, int64_t h, int64_t w, int64_t c) {
  ASSIGN_OR_RETURN(Descriptor tensor, Descriptor::Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  const cudnnDataType_t type = dtype == DType::kFloat32    ? CUDNN_DATA_FLOAT
                               : dtype == DType::kBFloat16 ? CUDNN_DATA_BFLOAT16
                                                           : CUDNN_DATA_HALF;
  RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type));
  RETURN_IF_ERROR(tensor.SetInts(CUDNN_ATTR_TENSOR_DIMENSIONS, std::array{n, c, h, w}));
  RETURN_IF_ERROR(tensor.SetInts(CUDNN_ATTR_TENSOR_STRIDES, std::array{h * w * c, int64_t{1}, w * c, c}));
  RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id));
  RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16}));
  RETURN_IF_ERROR(tensor.Finalize());
  return tensor;
}

// Rows and columns that are put around the images before cuDNN sees them, and what cuDNN pads on each side.
struct Margins {
  int64_t top, bottom, left, right;
  int64_t height, width;  // cuDNN's

  explicit Margins(const Window2D& window)
      : height(std::min(window.height.before, window.height.after)),
        width(std::min(window.width.before, window.width.after)) {
    top = window.height.before - height;
    bottom = window.height.after - height;
    left = window.width.before - width;
    right = window.width.after - width;
  }
  bool any() const { return top + bottom + left + right > 0; }
};

absl::StatusOr<Descriptor> MakeConvolution(const Window2D& window, const Margins& margins) {
  ASSIGN_OR_RETURN(Descriptor conv, Descriptor::Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  const std::array padding = {margins.height, margins.width};
  RETURN_IF_ERROR(conv.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2}));
  RETURN_IF_ERROR(conv.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
  RETURN_IF_ERROR(conv.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION));
  RETURN_IF_ERROR(conv.SetInts(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding));
  RETURN_IF_ERROR(conv.SetInts(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding));
  RETURN_IF_ERROR(
      conv.SetInts(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::array{window.height.dilation, window.width.dilation}));
  RETURN_IF_ERROR(
      conv.SetInts(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::array{window.height.stride, window.width.stride}));
  RETURN_IF_ERROR(conv.Finalize());
  return conv;
}

// Returns the descriptors of type `type` that `attribute` of `whole` consists of, `most` at most.
absl::StatusOr<std::vector<Descriptor>> PartsOf(const Descriptor& whole, cudnnBackendAttributeName_t attribute,
                                                cudnnBackendDescriptorType_t type, int64_t most) {
  std::vector<Descriptor> parts;
  std::vector<cudnnBackendDescriptor_t> to;
  for (int64_t i = 0; i < most; ++i) {
    ASSIGN_OR_RETURN(Descriptor part, Descriptor::Make(type));
    to.push_back(part.get());
    parts.push_back(std::move(part));
  }
  int64_t count = 0;
  CALL(cudnnBackendGetAttribute(whole.get(), attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, to.data()));
  parts.erase(parts.begin() + std::min(count, most), parts.end());
  return parts;
}

// Returns "engine 38, knobs 2=1 17=40": cuDNN's number of the engine, and how the configuration sets each type of knob.
absl::StatusOr<std::string> NameOf(const Descriptor& config, const Descriptor& engine) {
  int64_t index = 0, count = 0;
  CALL(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index));
  ASSIGN_OR_RETURN(
      const std::vector<Descriptor> choices,
      PartsOf(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS));
  std::set<std::pair<int, int64_t>> knobs;
  for (const Descriptor& choice : choices) {
    cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
    int64_t value = 0;
    CALL(cudnnBackendGetAttribute(choice.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &count,
                                  &type));
    CALL(
        cudnnBackendGetAttribute(choice.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &count, &value));
    knobs.emplace(static_cast<int>(type), value);
  }
  std::string name = absl::StrCat("engine ", index, knobs.empty() ? "" : ", knobs");
  for (const auto& [type, value] : knobs) absl::StrAppend(&name, " ", type, "=", value);
  return name;
}

// What cuDNN has refused to do, and why.
struct Refused {
  int count = 0;
  std::string first;

  void Add(const absl::Status& status) {
    if (++count == 1) first = std::string(status.message());
  }
};

// Whether an engine computes as Make promises. With tensor cores, float32 is computed in TF32.
absl::StatusOr<bool> IsAllowed(const Descriptor& engine, bool tensor_cores) {
  int64_t count = 0;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  CALL(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
  return std::none_of(notes, notes + count, [&](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
           note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 ||
           (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && !tensor_cores);
  });
}

// Whether cuDNN compiles an engine's kernels when a plan is made, for which it needs NVRTC.
absl::StatusOr<bool> IsCompiledAtRunTime(const Descriptor& engine) {
  int64_t count = 0;
  cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  CALL(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, notes));
  return std::find(notes, notes + count, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != notes + count;
}

// What there is to know of a configuration of an engine before a plan is made of it.
struct ConfigFacts {
  std::string name;
  bool allowed, compiled_at_run_time;
};
absl::StatusOr<ConfigFacts> FactsOf(const Descriptor& config, bool tensor_cores) {
  ASSIGN_OR_RETURN(const std::vector<Descriptor> engines,
                   PartsOf(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1));
  if (engines.empty()) return absl::InternalError("a configuration without an engine");
  ConfigFacts facts;
  ASSIGN_OR_RETURN(facts.name, NameOf(config, engines[0]));
  ASSIGN_OR_RETURN(facts.allowed, IsAllowed(engines[0], tensor_cores));
  ASSIGN_OR_RETURN(facts.compiled_at_run_time, IsCompiledAtRunTime(engines[0]));
  return facts;
}

// The engines that cuDNN recommends, best first.
absl::StatusOr<std::vector<Descriptor>> Recommended(const Descriptor& graph, cudnnBackendHeurMode_t mode,
                                                    Refused& refused) {
  ASSIGN_OR_RETURN(Descriptor heuristics, Descriptor::Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  RETURN_IF_ERROR(heuristics.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
  RETURN_IF_ERROR(heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode));
  // Some operations are unknown to some modes.
  if (const absl::Status status = heuristics.Finalize(); !status.ok()) {
    refused.Add(status);
    return std::vector<Descriptor>();
  }
  int64_t count = 0;
  CALL(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                &count, nullptr));
  return PartsOf(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

// Images inside larger ones: pixel (y, x) of the small is pixel (y + top, x + left) of the large.
struct Frame {
  int64_t images, height, width, channels;  // of the small ones
  int64_t large_height, large_width, top, left;

  int64_t small_elements() const { return images * height * width * channels; }
  int64_t large_elements() const { return images * large_height * large_width * channels; }
};

// Element i of the large images, from the small or zero.
template <typename T>
__global__ void PadImages(Frame f, int64_t elements, const T* small, T* large) {
  const int64_t i = ThreadIndex<int64_t>();
  if (i >= elements) return;
  const int64_t c = i % f.channels, x = i / f.channels % f.large_width - f.left;
  const int64_t row = i / f.channels / f.large_width, y = row % f.large_height - f.top, n = row / f.large_height;
  const bool inside = y >= 0 && y < f.height && x >= 0 && x < f.width;
  large[i] = inside ? small[((n * f.height + y) * f.width + x) * f.channels + c] : T(0);
}

// Element i of the small images, from the large.
template <typename T>
__global__ void CropImages(Frame f, int64_t elements, const T* large, T* small) {
  const int64_t i = ThreadIndex<int64_t>();
  if (i >= elements) return;
  const int64_t c = i % f.channels, x = i / f.channels % f.width + f.left;
  const int64_t row = i / f.channels / f.width, y = row % f.height + f.top, n = row / f.height;
  small[i] = large[((n * f.large_height + y) * f.large_width + x) * f.channels + c];
}

// [rows, columns] -> [columns, rows], a tile per block.
template <typename T>
__global__ void Transpose(int64_t rows, int64_t columns, const T* from, T* to) {
  __shared__ Shared<T[kTile][kTile + 1]> tile;
  const int lane = threadIdx.x % kTile, first = threadIdx.x / kTile;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kTile, column0 = static_cast<int64_t>(blockIdx.y) * kTile;
  for (int i = first; i < kTile; i += kTileRows) {
    if (row0 + i < rows && column0 + lane < columns) tile[i][lane] = from[(row0 + i) * columns + column0 + lane];
  }
  __syncthreads();
  for (int i = first; i < kTile; i += kTileRows) {
    if (column0 + i < columns && row0 + lane < rows) to[(column0 + i) * rows + row0 + lane] = tile[lane][i];
  }
}

// A configuration of an engine that the convolution can run on, made ready.
struct Engine {
  std::string name;
  Descriptor config, plan;
  int64_t workspace_bytes;
};

// What the times of the engines depend on.
std::string KeyOf(const CudaDevice& device, const ConvGeometry& g, ConvResult result, bool tensor_cores) {
  const auto axis = [](const WindowAxis& a) {
    return absl::StrCat(a.before, "+", a.after, "/", a.stride, "/", a.dilation);
  };
  const char* const of = result == ConvResult::kOutput   ? "output"
                         : result == ConvResult::kImages ? "images"
                                                         : "filters";
  return absl::StrCat("cuDNN ", cudnnGetVersion(), " on ", device.Hardware(), ": ", of, " of ", g.images.ToString(),
                      " * ", g.filters.ToString(), ", padding/stride/dilation ", axis(g.window.height), " ",
                      axis(g.window.width), tensor_cores ? ", tensor cores" : "");
}

// Calls f with a value of an integer type as large as `dtype`: what only moves numbers needs no more.
template <typename F>
void WithBits(DType dtype, F f) {
  dtype == DType::kFloat32 ? f(uint32_t()) : f(uint16_t());
}

}  // namespace

struct CudnnConv::Plan {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  ConvResult result;
  DType dtype;
  bool tensor_cores = false;  // may be used
  bool has_frame = false;
  Frame frame = {};
  int64_t filter_rows = 0, filter_columns = 0;  // HWIO filters as a matrix [KH * KW * C, O]
  int64_t filters_at = 0, images_at = 0, workspace_at = 0, scratch_bytes = 0;  // places in scratch memory
  std::vector<Descriptor> parts;                                               // of the graph
  std::optional<Engine> engine;

  absl::Status Init(const KernelSpec& spec, const ConvGeometry& g);
  absl::StatusOr<std::vector<Engine>> Engines(const CudaDevice& device, const Descriptor& graph, size_t most,
                                              const std::string& name = "") const;
  absl::StatusOr<std::string> FastestEngine(CudaDevice& device, const ConvGeometry& g, const Descriptor& graph) const;
  absl::StatusOr<std::string> TimeEngines(CudaDevice& device, const ConvGeometry& g, std::vector<Engine> engines) const;
  absl::Status ChooseEngine(const KernelSpec& spec, const ConvGeometry& g, const Descriptor& graph);
  int64_t AddScratch(int64_t bytes) {
    const int64_t at = scratch_bytes;
    scratch_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  absl::Status TransposeFilters(int64_t rows, int64_t columns, const void* from, void* to) const;
  absl::Status Execute(const Engine& engine, const void* images, const void* filters, const void* output,
                       void* workspace) const;
};

absl::Status CudnnConv::Plan::Init(const KernelSpec& spec, const ConvGeometry& g) {
  CudaDevice& device = CudaDeviceOf(spec);
  ASSIGN_OR_RETURN(handle, device.cudnn());
  stream = device.stream();
  dtype = g.images.dtype;
  tensor_cores = dtype != DType::kFloat32 || device.allow_tf32();
  const Shape &images = g.images.shape, &filters = g.filters.shape, &output = g.output.shape;
  const Margins margins(g.window);
  has_frame = margins.any();
  frame = {images.dim(0),
           images.dim(1),
           images.dim(2),
           images.dim(3),
           images.dim(1) + margins.top + margins.bottom,
           images.dim(2) + margins.left + margins.right,
           margins.top,
           margins.left};
  filter_rows = filters.dim(0) * filters.dim(1) * filters.dim(2);
  filter_columns = filters.dim(3);

  ASSIGN_OR_RETURN(Descriptor x,
                   MakeTensor(kImagesId, dtype, frame.images, frame.large_height, frame.large_width, frame.channels));
  ASSIGN_OR_RETURN(Descriptor w,
                   MakeTensor(kFiltersId, dtype, filters.dim(3), filters.dim(0), filters.dim(1), filters.dim(2)));
  ASSIGN_OR_RETURN(Descriptor y,
                   MakeTensor(kOutputId, dtype, output.dim(0), output.dim(1), output.dim(2), output.dim(3)));
  ASSIGN_OR_RETURN(Descriptor conv, MakeConvolution(g.window, margins));
  const Operation names = OperationOf(result);
  ASSIGN_OR_RETURN(Descriptor operation, Descriptor::Make(names.type));
  RETURN_IF_ERROR(operation.SetDescriptor(names.images, x));
  RETURN_IF_ERROR(operation.SetDescriptor(names.filters, w));
  RETURN_IF_ERROR(operation.SetDescriptor(names.output, y));
  RETURN_IF_ERROR(operation.SetDescriptor(names.convolution, conv));
  RETURN_IF_ERROR(operation.Set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f));
  RETURN_IF_ERROR(operation.Set(names.beta, CUDNN_TYPE_FLOAT, 0.0f));
  RETURN_IF_ERROR(operation.Finalize());
  ASSIGN_OR_RETURN(Descriptor graph, Descriptor::Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle));
  RETURN_IF_ERROR(graph.SetDescriptor(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation));
  RETURN_IF_ERROR(graph.Finalize());
  RETURN_IF_ERROR(ChooseEngine(spec, g, graph));
  for (Descriptor* part : {&x, &w, &y, &conv, &operation, &graph}) parts.push_back(std::move(*part));

  filters_at = AddScratch(g.filters.num_bytes());
  images_at = AddScratch(has_frame ? frame.large_elements() * SizeOf(dtype) : 0);
  workspace_at = AddScratch(engine->workspace_bytes);
  return absl::OkStatus();
}

// Up to `most` engines that compute as Make promises, those first that cuDNN recommends; only the one of that name if
// one is given. What is recommended twice is one engine.
absl::StatusOr<std::vector<Engine>> CudnnConv::Plan::Engines(const CudaDevice& device, const Descriptor& graph,
                                                             size_t most, const std::string& name) const {
  std::vector<Engine> engines;
  std::set<std::string> seen;
  Refused refused, not_compiled;
  int compiled = 0;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    ASSIGN_OR_RETURN(std::vector<Descriptor> configs, Recommended(graph, mode, refused));
    for (size_t i = 0; i < configs.size() && engines.size() < most; ++i) {
      absl::StatusOr<ConfigFacts> facts = FactsOf(configs[i], tensor_cores);
      if (!facts.ok()) refused.Add(facts.status());
      if (!facts.ok() || !facts->allowed || (!name.empty() && name != facts->name)) continue;
      if (!seen.insert(facts->name).second) continue;
      if (facts->compiled_at_run_time && compiled == kMaxCompiled) continue;
      ASSIGN_OR_RETURN(Descriptor plan, Descriptor::Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
      RETURN_IF_ERROR(plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle));
      RETURN_IF_ERROR(plan.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i]));
      if (const absl::Status status = plan.Finalize(); !status.ok()) {  // not for this device or these shapes
        refused.Add(status);
        if (facts->compiled_at_run_time) not_compiled.Add(status);
        continue;
      }
      if (facts->compiled_at_run_time) ++compiled;
      int64_t workspace_bytes = 0, count = 0;
      CALL(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                    &workspace_bytes));
      if (workspace_bytes > kMaxWorkspace) continue;
      engines.push_back({std::move(facts->name), std::move(configs[i]), std::move(plan), workspace_bytes});
    }
  }
  if (not_compiled.count > 0 && !FindNvrtc()) {
    device.Warn(absl::StrCat("cuDNN goes without algorithms that it compiles when they are needed, since ", NvrtcName(),
                             " is not found; name its folder in LD_LIBRARY_PATH. cuDNN says: ", not_compiled.first));
  }
  if (!engines.empty() || !name.empty()) return engines;
  return absl::UnimplementedError(absl::StrCat(
      "cuDNN ", cudnnGetVersion(), " has no algorithm for this convolution",
      refused.count > 0 ? absl::StrCat("; of ", refused.count, " refusals the first is: ", refused.first) : ""));
}

// The name of the engine that takes the least time for numbers that are all zero; of the first if there is no memory to
// time them in.
absl::StatusOr<std::string> CudnnConv::Plan::FastestEngine(CudaDevice& device, const ConvGeometry& g,
                                                           const Descriptor& graph) const {
  ASSIGN_OR_RETURN(std::vector<Engine> engines, Engines(device, graph, kAll));
  const std::string first = engines[0].name;
  if (engines.size() == 1) return first;
  const absl::StatusOr<std::string> fastest = TimeEngines(device, g, std::move(engines));
  if (!absl::IsResourceExhausted(fastest.status())) return fastest;
  device.Warn(absl::StrCat("there is not enough memory to time the algorithms of convolutions on ", device.name(),
                           ": cuDNN's first choice is taken, which may be slower; try a smaller batch"));
  return first;
}

absl::StatusOr<std::string> CudnnConv::Plan::TimeEngines(CudaDevice& device, const ConvGeometry& g,
                                                         std::vector<Engine> engines) const {
  ASSIGN_OR_RETURN(const auto images, device.Allocate(frame.large_elements() * SizeOf(dtype)));
  ASSIGN_OR_RETURN(const auto filters, device.Allocate(g.filters.num_bytes()));
  ASSIGN_OR_RETURN(const auto output, device.Allocate(g.output.num_bytes()));
  // The engines share one workspace. Those that need the most are left out until there is memory for the others'.
  std::shared_ptr<void> workspace;
  for (;;) {
    int64_t bytes = 0;
    for (const Engine& e : engines) bytes = std::max(bytes, e.workspace_bytes);
    absl::StatusOr<std::shared_ptr<void>> allocated = device.Allocate(bytes);
    if (allocated.ok()) {
      workspace = *std::move(allocated);
      break;
    }
    std::erase_if(engines, [&](const Engine& e) { return e.workspace_bytes == bytes; });
    if (engines.empty() || !absl::IsResourceExhausted(allocated.status())) return allocated.status();
  }
  ASSIGN_OR_RETURN(const int fastest, FastestOnStream(stream, static_cast<int>(engines.size()), [&](int i) {
                     return Execute(engines[i], images.get(), filters.get(), output.get(), workspace.get());
                   }));
  return engines[fastest].name;
}

absl::Status CudnnConv::Plan::ChooseEngine(const KernelSpec& spec, const ConvGeometry& g, const Descriptor& graph) {
  std::vector<Engine> chosen;
  CudaDevice& device = CudaDeviceOf(spec);
  if (spec.choices == nullptr) {
    ASSIGN_OR_RETURN(chosen, Engines(device, graph, 1));
  } else {
    const std::string key = KeyOf(device, g, result, tensor_cores);
    const auto choose = [&] { return FastestEngine(device, g, graph); };
    ASSIGN_OR_RETURN(const std::string kept, spec.choices->FindOrChoose(key, choose));
    ASSIGN_OR_RETURN(chosen, Engines(device, graph, 1, kept));
    if (chosen.empty()) {
      spec.choices->Forget(key);
      ASSIGN_OR_RETURN(const std::string name, spec.choices->FindOrChoose(key, choose));
      ASSIGN_OR_RETURN(chosen, Engines(device, graph, 1, name));
      if (chosen.empty())
        return absl::InternalError(absl::StrCat("cuDNN's algorithm ", name, " is no longer available"));
    }
  }
  engine = std::move(chosen[0]);
  return absl::OkStatus();
}

absl::Status CudnnConv::Plan::TransposeFilters(int64_t rows, int64_t columns, const void* from, void* to) const {
  const dim3 blocks(NumBlocks(rows, kTile), NumBlocks(columns, kTile));
  WithBits(dtype, [&]<typename T>(T) {
    Launch(Transpose<T>, blocks, kThreads, 0, stream, rows, columns, static_cast<const T*>(from), static_cast<T*>(to));
  });
  return LaunchStatus("Transpose");
}

absl::Status CudnnConv::Plan::Execute(const Engine& engine, const void* images, const void* filters, const void* output,
                                      void* workspace) const {
  ASSIGN_OR_RETURN(Descriptor pack, Descriptor::Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  const void* const addresses[] = {images, filters, output};
  RETURN_IF_ERROR(pack.SetAll(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, addresses));
  RETURN_IF_ERROR(pack.SetInts(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                               std::array{int64_t{kImagesId}, int64_t{kFiltersId}, int64_t{kOutputId}}));
  RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace));
  RETURN_IF_ERROR(pack.Finalize());
  return CudaStatus(cudnnBackendExecute(handle, engine.plan.get(), pack.get()), "cudnnBackendExecute");
}

CudnnConv::CudnnConv(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
CudnnConv::~CudnnConv() = default;

absl::StatusOr<std::shared_ptr<const CudnnConv>> CudnnConv::Make(const KernelSpec& spec, const ConvGeometry& geometry,
                                                                 ConvResult result) {
  auto plan = std::make_unique<Plan>();
  plan->result = result;
  if (const absl::Status status = plan->Init(spec, geometry); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("convolution of ", geometry.images.ToString(), " with ",
                                                    geometry.filters.ToString(), ": ", status.message()));
  }
  return std::shared_ptr<const CudnnConv>(new CudnnConv(std::move(plan)));
}

// The scratch memory itself need not be as aligned as cuDNN wants.
int64_t CudnnConv::scratch_bytes() const { return plan_->scratch_bytes + kAlignment; }

absl::Status CudnnConv::Run(const void* images, const void* filters, const void* output, void* scratch) const {
  const Plan& p = *plan_;
  char* const begin =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(scratch) + kAlignment - 1) / kAlignment * kAlignment);
  void* const own_filters = begin + p.filters_at;
  void* const own_images = p.has_frame ? begin + p.images_at : const_cast<void*>(images);
  if (p.result != ConvResult::kFilters) {
    RETURN_IF_ERROR(p.TransposeFilters(p.filter_rows, p.filter_columns, filters, own_filters));
  }
  if (p.has_frame && p.result != ConvResult::kImages) {
    const int64_t elements = p.frame.large_elements();
    WithBits(p.dtype, [&]<typename T>(T) {
      Launch(PadImages<T>, NumBlocks(elements, kThreads), kThreads, 0, p.stream, p.frame, elements,
             static_cast<const T*>(images), static_cast<T*>(own_images));
    });
    RETURN_IF_ERROR(LaunchStatus("PadImages"));
  }
  RETURN_IF_ERROR(p.Execute(*p.engine, own_images, own_filters, output, begin + p.workspace_at));
  if (p.has_frame && p.result == ConvResult::kImages) {
    const int64_t elements = p.frame.small_elements();
    WithBits(p.dtype, [&]<typename T>(T) {
      Launch(CropImages<T>, NumBlocks(elements, kThreads), kThreads, 0, p.stream, p.frame, elements,
             static_cast<const T*>(own_images), static_cast<T*>(const_cast<void*>(images)));
    });
    RETURN_IF_ERROR(LaunchStatus("CropImages"));
  }
  if (p.result == ConvResult::kFilters) {
    RETURN_IF_ERROR(p.TransposeFilters(p.filter_columns, p.filter_rows, own_filters, const_cast<void*>(filters)));
  }
  return absl::OkStatus();
}

}  // namespace official::compute
