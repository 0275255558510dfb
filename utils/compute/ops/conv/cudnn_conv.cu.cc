// cuDNN's graph API, with one operation. Images are NHWC. Filters are HWIO outside and OHWI for cuDNN: turned around in
// scratch memory at each run, which costs little beside the convolution. cuDNN's padding is the same on both sides of
// an axis; what one side has more is put around the images in scratch memory.

#include "utils/compute/ops/conv/cudnn_conv.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/box_copy.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/box_move.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/fastest.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/nvrtc.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 32, kTileRows = kThreads / kTile;  // of a transposition
constexpr int64_t kAlignment = 256;                      // of what cuDNN gets in scratch memory

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
  Shape large;                // of the images as cuDNN sees them
  BoxMove move;               // to those images or, if they are the result, from them; null if they have no margins
  int64_t filter_rows = 0, filter_columns = 0;  // HWIO filters as a matrix [KH * KW * C, O]
  int64_t filters_at = 0, images_at = 0, workspace_at = 0, scratch_bytes = 0;  // places in scratch memory
  std::optional<ConvEngine> engine;

  int64_t LargeBytes() const { return large.num_elements() * SizeOf(dtype); }
  absl::Status Init(const KernelSpec& spec, const ConvGeometry& g);
  absl::StatusOr<std::vector<ConvEngine>> Engines(const CudaDevice& device, const ConvPlans& plans,
                                                  const EngineFilter& filter) const;
  absl::StatusOr<std::string> FastestEngine(CudaDevice& device, const ConvGeometry& g, const ConvPlans& plans) const;
  absl::StatusOr<std::string> TimeEngines(CudaDevice& device, const ConvGeometry& g,
                                          std::vector<ConvEngine> engines) const;
  absl::Status ChooseEngine(const KernelSpec& spec, const ConvGeometry& g, const ConvPlans& plans);
  int64_t AddScratch(int64_t bytes) {
    const int64_t at = scratch_bytes;
    scratch_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  absl::Status TransposeFilters(int64_t rows, int64_t columns, const void* from, void* to) const;
  absl::Status Execute(const ConvEngine& engine, const void* images, const void* filters, const void* output,
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
  large = {images.dim(0), images.dim(1) + margins.top + margins.bottom, images.dim(2) + margins.left + margins.right,
           images.dim(3)};
  if (margins.any()) {
    const BoxPlace inside{large, {0, margins.top, margins.left, 0}}, own{images, {0, 0, 0, 0}};
    move = result == ConvResult::kImages ? MoveBox(MakeBoxCopy(images, inside, own, SizeOf(dtype)))
                                         : MoveBoxAndPad(MakeBoxCopy(images, own, inside, SizeOf(dtype)), LargeBytes());
  }
  filter_rows = filters.dim(0) * filters.dim(1) * filters.dim(2);
  filter_columns = filters.dim(3);

  const WindowAxis &rows = g.window.height, &columns = g.window.width;
  const CudnnConvolution convolution = {
      .result = result,
      .dtype = dtype,
      .images = {large.dim(0), large.dim(1), large.dim(2), large.dim(3)},
      .filters = {filters.dim(3), filters.dim(0), filters.dim(1), filters.dim(2)},
      .output = {output.dim(0), output.dim(1), output.dim(2), output.dim(3)},
      .padding = {margins.height, margins.width},
      .strides = {rows.stride, columns.stride},
      .dilations = {rows.dilation, columns.dilation},
      .tensor_cores = tensor_cores,
  };
  ASSIGN_OR_RETURN(const ConvPlans plans, ConvPlans::Make(handle, nullptr, convolution));
  RETURN_IF_ERROR(ChooseEngine(spec, g, plans));

  filters_at = AddScratch(g.filters.num_bytes());
  images_at = AddScratch(move ? LargeBytes() : 0);
  workspace_at = AddScratch(engine->workspace_bytes);
  return absl::OkStatus();
}

// Warns if engines could not be compiled for want of NVRTC.
absl::StatusOr<std::vector<ConvEngine>> CudnnConv::Plan::Engines(const CudaDevice& device, const ConvPlans& plans,
                                                                 const EngineFilter& filter) const {
  CudnnRefusals not_compiled;
  absl::StatusOr<std::vector<ConvEngine>> engines = plans.Engines(filter, not_compiled);
  if (not_compiled.count > 0 && !FindNvrtc()) {
    device.Warn(absl::StrCat("cuDNN goes without algorithms that it compiles when they are needed, since ", NvrtcName(),
                             " is not found; name its folder in LD_LIBRARY_PATH. cuDNN says: ", not_compiled.first));
  }
  return engines;
}

// The name of the engine that takes the least time for numbers that are all zero; of the first if there is no memory to
// time them in.
absl::StatusOr<std::string> CudnnConv::Plan::FastestEngine(CudaDevice& device, const ConvGeometry& g,
                                                           const ConvPlans& plans) const {
  ASSIGN_OR_RETURN(std::vector<ConvEngine> engines, Engines(device, plans, {}));
  const std::string first = engines[0].name;
  if (engines.size() == 1) return first;
  const absl::StatusOr<std::string> fastest = TimeEngines(device, g, std::move(engines));
  if (!absl::IsResourceExhausted(fastest.status())) return fastest;
  device.Warn(absl::StrCat("there is not enough memory to time the algorithms of convolutions on ", device.name(),
                           ": cuDNN's first choice is taken, which may be slower; try a smaller batch"));
  return first;
}

absl::StatusOr<std::string> CudnnConv::Plan::TimeEngines(CudaDevice& device, const ConvGeometry& g,
                                                         std::vector<ConvEngine> engines) const {
  ASSIGN_OR_RETURN(const auto images, device.Allocate(LargeBytes()));
  ASSIGN_OR_RETURN(const auto filters, device.Allocate(g.filters.num_bytes()));
  ASSIGN_OR_RETURN(const auto output, device.Allocate(g.output.num_bytes()));
  // The engines share one workspace. Those that need the most are left out until there is memory for the others'.
  std::shared_ptr<void> workspace;
  for (;;) {
    int64_t bytes = 0;
    for (const ConvEngine& e : engines) bytes = std::max(bytes, e.workspace_bytes);
    absl::StatusOr<std::shared_ptr<void>> allocated = device.Allocate(bytes);
    if (allocated.ok()) {
      workspace = *std::move(allocated);
      break;
    }
    std::erase_if(engines, [&](const ConvEngine& e) { return e.workspace_bytes == bytes; });
    if (engines.empty() || !absl::IsResourceExhausted(allocated.status())) return allocated.status();
  }
  ASSIGN_OR_RETURN(const int fastest, FastestOnStream(stream, static_cast<int>(engines.size()), [&](int i) {
                     return Execute(engines[i], images.get(), filters.get(), output.get(), workspace.get());
                   }));
  return engines[fastest].name;
}

absl::Status CudnnConv::Plan::ChooseEngine(const KernelSpec& spec, const ConvGeometry& g, const ConvPlans& plans) {
  std::vector<ConvEngine> chosen;
  CudaDevice& device = CudaDeviceOf(spec);
  if (spec.choices == nullptr) {
    ASSIGN_OR_RETURN(chosen, Engines(device, plans, {.most = 1}));
  } else {
    const std::string key = KeyOf(device, g, result, tensor_cores);
    const auto choose = [&] { return FastestEngine(device, g, plans); };
    ASSIGN_OR_RETURN(const std::string kept, spec.choices->FindOrChoose(key, choose));
    ASSIGN_OR_RETURN(chosen, Engines(device, plans, {.name = kept, .most = 1}));
    if (chosen.empty()) {
      spec.choices->Forget(key);
      ASSIGN_OR_RETURN(const std::string name, spec.choices->FindOrChoose(key, choose));
      ASSIGN_OR_RETURN(chosen, Engines(device, plans, {.name = name, .most = 1}));
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

absl::Status CudnnConv::Plan::Execute(const ConvEngine& engine, const void* images, const void* filters,
                                      const void* output, void* workspace) const {
  ASSIGN_OR_RETURN(CudnnDescriptor pack, CudnnDescriptor::Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
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
  void* const own_images = p.move ? begin + p.images_at : const_cast<void*>(images);
  if (p.result != ConvResult::kFilters) {
    RETURN_IF_ERROR(p.TransposeFilters(p.filter_rows, p.filter_columns, filters, own_filters));
  }
  if (p.move && p.result != ConvResult::kImages) RETURN_IF_ERROR(p.move(p.stream, images, own_images));
  RETURN_IF_ERROR(p.Execute(*p.engine, own_images, own_filters, output, begin + p.workspace_at));
  if (p.move && p.result == ConvResult::kImages) {
    RETURN_IF_ERROR(p.move(p.stream, own_images, const_cast<void*>(images)));
  }
  if (p.result == ConvResult::kFilters) {
    RETURN_IF_ERROR(p.TransposeFilters(p.filter_columns, p.filter_rows, own_filters, const_cast<void*>(filters)));
  }
  return absl::OkStatus();
}

}  // namespace official::compute
