// CPU kernels of convolution: oneDNN's direct ones; our own are in winograd_cpu.cc and filter_gradient_bf16.cc. Filters
// are HWIO outside; oneDNN's own order of them is made in scratch memory at each run, which costs little beside the
// convolution.
//
// Images are channel-blocked where their channels allow it: oneDNN's gradients of filters are up to twice as fast then
// (3 x 3 with stride 2), the rest as fast as with row-major ones (NHWC) or a little faster, and Winograd's algorithm
// exists for them only. But oneDNN multiplies with AMX's tiles only where images are row-major: with AMX those of
// bfloat16 are, and all of their convolutions but the gradients of filters are oneDNN's.

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/compute_in_float.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/graph/node_cost.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/conv/conv_choice.h"
#include "utils/compute/ops/conv/filter_gradient_bf16.h"
#include "utils/compute/ops/conv/geometry.h"
#include "utils/compute/ops/conv/winograd.h"

namespace official::compute {
namespace {

namespace backprop_input = conv2d_backprop_input;
namespace backprop_filter = conv2d_backprop_filter;

using dnnl::memory;

constexpr dnnl::algorithm kDirect = dnnl::algorithm::convolution_direct;

// A convolution in oneDNN's terms.
struct Problem {
  ConvGeometry geometry;
  memory::dims strides, dilates, padding_before, padding_after;
  memory::desc images, output;
  memory::desc filters;      // in HWIO
  memory::desc any_filters;  // in the order that the primitive likes best
  memory::desc bias;
};

memory::desc FilterDesc(const TensorType& filters, memory::format_tag order) {
  const Shape& s = filters.shape;
  return memory::desc({s.dim(3), s.dim(2), s.dim(0), s.dim(1)}, OnednnType(filters.dtype), order);
}

memory::desc OnednnImagesOf(const TensorType& images, Layout layout, int64_t count) {
  const Shape& s = images.shape;
  return OnednnImages({images.dtype, Shape({count, s.dim(1), s.dim(2), s.dim(3)})}, layout);
}

// Of the first `count` images of the batch.
Problem MakeProblem(const KernelSpec& spec, Layout images, Layout output, int64_t count) {
  Problem p;
  p.geometry = ConvGeometryOf(spec.node);
  const WindowAxis &h = p.geometry.window.height, &w = p.geometry.window.width;
  p.strides = {h.stride, w.stride};
  p.dilates = {h.dilation - 1, w.dilation - 1};  // oneDNN counts the gaps
  p.padding_before = {h.before, w.before};
  p.padding_after = {h.after, w.after};
  p.images = OnednnImagesOf(p.geometry.images, images, count);
  p.output = OnednnImagesOf(p.geometry.output, output, count);
  p.filters = FilterDesc(p.geometry.filters, memory::format_tag::hwio);
  p.any_filters = FilterDesc(p.geometry.filters, memory::format_tag::any);
  p.bias = memory::desc({p.geometry.filters.shape.dim(3)}, p.filters.data_type(), memory::format_tag::x);
  return p;
}

dnnl::convolution_forward::primitive_desc ForwardDesc(const Problem& p, const memory::desc& filters,
                                                      const dnnl::primitive_attr& attr, const memory::desc& bias = {}) {
  return {{dnnl::prop_kind::forward_training, kDirect, p.images, filters, bias, p.output, p.strides, p.dilates,
           p.padding_before, p.padding_after},
          attr,
          OnednnEngine()};
}

// Nothing to compute: a gradient of no images is zero.
bool IsEmpty(const KernelSpec& spec) {
  const ConvGeometry geometry = ConvGeometryOf(spec.node);
  return geometry.images.shape.num_elements() == 0 || geometry.output.shape.num_elements() == 0;
}
Kernel ZeroKernel(const KernelSpec& spec) {
  std::vector<int64_t> bytes;
  for (const TensorType& type : spec.node.output_types()) bytes.push_back(type.num_bytes());
  return {[bytes](const KernelArgs& args) {
    for (size_t i = 0; i < bytes.size(); ++i) std::memset(args.outputs[i], 0, bytes[i]);
    return absl::OkStatus();
  }};
}

// Brings filters from HWIO into the order that a primitive wants.
struct FilterReorder {
  OnednnPrimitive reorder;  // empty if it wants HWIO
  int64_t offset = 0;

  FilterReorder(const Problem& p, const memory::desc& wanted, ScratchPlan& scratch) {
    if (wanted == p.filters) return;
    reorder = OnednnReorder(p.filters, wanted);
    offset = scratch.Add(wanted.get_size());
  }
  absl::StatusOr<const void*> Run(const KernelArgs& args, const void* filters) const {
    if (!reorder) return filters;
    void* const result = ScratchAt(args, offset);
    RETURN_IF_ERROR(reorder.Run({filters, result}));
    return result;
  }
};

int64_t BytesOfImages(const TensorType& images, int64_t count) {
  return images.num_bytes() / images.shape.dim(0) * count;
}

// Calls run(part) for each at the same time, and returns one of the errors, if there are any.
absl::Status RunParts(int64_t count, absl::FunctionRef<absl::Status(int part)> run) {
  struct Context {
    absl::FunctionRef<absl::Status(int part)> run;
    std::mutex mutex;
    absl::Status status;
  } context{.run = run, .mutex = {}, .status = {}};
  ParallelRun(
      static_cast<int>(count),
      [](void* opaque, int part) {
        Context& c = *static_cast<Context*>(opaque);
        absl::Status status = c.run(part);
        if (status.ok()) return;
        const std::lock_guard<std::mutex> lock(c.mutex);
        c.status = std::move(status);
      },
      &context);
  return context.status;
}

// Returns into how many parts of the batch a node is divided whose images are independent of each other: as many as
// threads may take part, or one, which oneDNN divides among the threads, where there is too little work.
int PartsOfBatch(const Node& node) {
  constexpr double kLeastFlops = 1 << 23;  // of a part; they take about a tenth of a millisecond
  const int64_t parts = std::min({int64_t{MostThreads()}, ConvGeometryOf(node).images.shape.dim(0),
                                  static_cast<int64_t>(*FlopsOf(node) / kLeastFlops)});
  return parts > NumThreads() ? static_cast<int>(parts) : 1;
}

// An op that computes each image of its output from one of its input.
struct EachImage {
  TensorType input, output;
  int input_argument, output_argument;  // DNNL_ARG_...
  int images, filters;                  // inputs of its node
  std::optional<int> bias = std::nullopt;
};

// The primitive for the images of a part of the batch.
struct ImagesPart {
  OnednnPrimitive conv;           // has memory objects of its own, so that the parts can run at the same time
  int64_t input = 0, output = 0;  // where its images begin, in bytes
  int64_t scratchpad = 0;         // the place of oneDNN's
};

// `describe` returns oneDNN's description of a primitive for so many images, with the filters in this order.
template <typename Primitive, typename Describe>
Kernel MakeForEachImage(const Node& node, const Problem& p, const EachImage& op, const Describe& describe) {
  const int count = PartsOfBatch(node);
  const int onednn_parts = count > 1 ? 1 : 0;
  const auto make = [&](const Share& images, const memory::desc& order) {
    const OnednnParts divided(onednn_parts);
    const auto pd = describe(images.size(), order);
    return std::pair(pd, Primitive(pd));
  };
  // The parts have one of two sizes.
  const int64_t batch = p.geometry.images.shape.dim(0);
  const Share first = ShareOf(batch, 0, count), last = ShareOf(batch, count - 1, count);
  const auto large = make(first, p.any_filters);
  const auto small = last.size() == first.size() ? large : make(last, large.first.weights_desc());
  ScratchPlan scratch;
  const FilterReorder filters(p, large.first.weights_desc(), scratch);
  std::vector<ImagesPart> parts;
  for (int i = 0; i < count; ++i) {
    const Share images = ShareOf(batch, i, count);
    const auto& [pd, primitive] = images.size() == first.size() ? large : small;
    std::vector<OnednnPrimitive::Argument> arguments;
    for (const int id : {op.input_argument, DNNL_ARG_WEIGHTS, op.output_argument, DNNL_ARG_SCRATCHPAD}) {
      arguments.push_back({id, pd.query_md(dnnl::query::exec_arg_md, id)});
    }
    if (op.bias) arguments.push_back({DNNL_ARG_BIAS, p.bias});
    parts.push_back({.conv = OnednnPrimitive(primitive, arguments),
                     .input = BytesOfImages(op.input, images.begin),
                     .output = BytesOfImages(op.output, images.begin),
                     .scratchpad = scratch.Add(pd.scratchpad_desc().get_size())});
  }
  return Kernel{.run = [=, parts = std::move(parts)](const KernelArgs& args) -> absl::Status {
                  ASSIGN_OR_RETURN(const void* weights, filters.Run(args, args.inputs[op.filters]));
                  const auto* const input = static_cast<const char*>(args.inputs[op.images]);
                  auto* const output = static_cast<char*>(args.outputs[0]);
                  return RunParts(count, [&](int i) {
                    const ImagesPart& part = parts[i];
                    const OnednnParts divided(onednn_parts);
                    const void* const addresses[] = {input + part.input, weights, output + part.output,
                                                     ScratchAt(args, part.scratchpad),
                                                     op.bias ? args.inputs[*op.bias] : nullptr};
                    return part.conv.Run(absl::MakeConstSpan(addresses, op.bias ? 5 : 4));
                  });
                },
                .scratch_bytes = scratch.bytes(),
                .algorithm = OnednnAlgorithm(large.first)};
}

// Conv2D and FusedConv2D.
absl::StatusOr<Kernel> MakeForward(const KernelSpec& spec) {
  if (IsEmpty(spec)) return ZeroKernel(spec);
  const auto problem = [&spec](int64_t images) {
    return MakeProblem(spec, spec.input_layouts[conv2d::kImages], spec.output_layouts[0], images);
  };
  const ConvGeometry geometry = ConvGeometryOf(spec.node);
  const Problem p = problem(geometry.images.shape.dim(0));
  const bool has_bias = spec.node.num_inputs() > conv2d::kBias;
  dnnl::primitive_attr attr = OnednnAttr();
  if (has_bias && spec.attrs().Get<std::string>("activation") == "Relu") {
    dnnl::post_ops relu;
    relu.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);  // makes 0 of NaN
    attr.set_post_ops(relu);
  }
  const EachImage op = {.input = geometry.images,
                        .output = geometry.output,
                        .input_argument = DNNL_ARG_SRC,
                        .output_argument = DNNL_ARG_DST,
                        .images = conv2d::kImages,
                        .filters = conv2d::kFilters,
                        .bias = has_bias ? std::optional<int>(conv2d::kBias) : std::nullopt};
  return MakeForEachImage<dnnl::convolution_forward>(
      spec.node, p, op, [&](int64_t images, const memory::desc& filters) {
        return ForwardDesc(problem(images), filters, attr, has_bias ? p.bias : memory::desc());
      });
}

absl::StatusOr<Kernel> MakeBackpropInput(const KernelSpec& spec) {
  if (IsEmpty(spec)) return ZeroKernel(spec);
  const auto problem = [&spec](int64_t images) {
    return MakeProblem(spec, spec.output_layouts[0], spec.input_layouts[backprop_input::kDy], images);
  };
  const ConvGeometry geometry = ConvGeometryOf(spec.node);
  const EachImage op = {.input = geometry.output,
                        .output = geometry.images,
                        .input_argument = DNNL_ARG_DIFF_DST,
                        .output_argument = DNNL_ARG_DIFF_SRC,
                        .images = backprop_input::kDy,
                        .filters = backprop_input::kFilters};
  return MakeForEachImage<dnnl::convolution_backward_data>(
      spec.node, problem(geometry.images.shape.dim(0)), op, [&](int64_t images, const memory::desc& filters) {
        const Problem p = problem(images);
        return dnnl::convolution_backward_data::primitive_desc(
            {kDirect, p.images, filters, p.output, p.strides, p.dilates, p.padding_before, p.padding_after},
            OnednnAttr(), OnednnEngine(), ForwardDesc(p, p.any_filters, OnednnAttr()));
      });
}

// The gradient of filters is a sum over the batch, which oneDNN divides among its threads. To have the same bits with
// any number of them, the batch is divided here, into parts that depend on the problem alone: Graph::batch_parts times
// a power of two. Each part is a primitive for one thread; their sums are added in the order of a tree.
class FilterGradientParts {
 public:
  FilterGradientParts(const ConvGeometry& geometry, int batch_parts) : batch_(geometry.images.shape.dim(0)) {
    // To add a part takes as long as to compute some dozen pixels.
    constexpr int64_t kPixels = 256;
    const Shape& s = geometry.output.shape;
    const int64_t pixels = s.dim(0) * s.dim(1) * s.dim(2);
    count_ = batch_parts;
    while (count_ < 4 * batch_parts && pixels / (2 * count_) >= kPixels) count_ *= 2;
  }
  int64_t count() const { return count_; }
  // Where there are more parts than images, some have none, but never the first.
  Share images(int64_t part) const { return ShareOf(batch_, part, count_); }

 private:
  int64_t batch_, count_;
};

// Adds the parts, of n floats each, which follow one another, in the first of them.
void AddParts(float* parts, int64_t count, int64_t n) {
  constexpr int64_t kGrain = 1 << 12, kBlock = 1 << 10;
  ParallelFor(n, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t size = std::min(kBlock, end - at);
      for (int64_t step = 1; step < count; step *= 2) {
        for (int64_t part = 0; part + step < count; part += 2 * step) {
          float* const sum = parts + part * n + at;
          const float* const x = sum + step * n;
          for (int64_t i = 0; i < size; ++i) sum[i] += x[i];
        }
      }
    }
  });
}

// The gradients of filters, and of the bias if there is one, of a part of the batch.
struct FilterGradientPart {
  OnednnPrimitive conv;  // has memory objects of its own, so that the parts can run at the same time; empty: no images
  int64_t images = 0, dy = 0;  // where its images and their gradients begin, in bytes
  int64_t scratchpad = 0;      // the place of oneDNN's
  memory::desc gradient;       // oneDNN's order of the filters
  std::string algorithm;
};

// The order in which oneDNN computes the gradient of filters: any, but where oneDNN 2.6.3 would take jit_1x1 and that
// writes behind its scratch memory, for windows of one pixel with strides and fewer channels than a vector has.
memory::format_tag OrderOfGradient(const Problem& p) {
  const Shape& filters = p.geometry.filters.shape;
  const bool skips = *std::max_element(p.strides.begin(), p.strides.end()) > 1;
  const bool is_pixel = filters.dim(0) == 1 && filters.dim(1) == 1;
  const int64_t lanes = HasAvx512() ? 16 : 8;
  return is_pixel && skips && filters.dim(2) < lanes ? memory::format_tag::hwio : memory::format_tag::any;
}

// `order` is that of the filters, if another part has chosen it.
FilterGradientPart MakeFilterGradientPart(const KernelSpec& spec, const Share& images, const memory::desc* order,
                                          ScratchPlan& scratch) {
  const Layout image_layout = spec.input_layouts[backprop_filter::kImages];
  const Layout dy_layout = spec.input_layouts[backprop_filter::kDy];
  const Problem p = MakeProblem(spec, image_layout, dy_layout, images.size());
  const bool has_bias = spec.node.num_outputs() > backprop_filter::kBiasGradient;
  const memory::desc bias = has_bias ? p.bias : memory::desc();
  const memory::desc d_filters =
      order != nullptr ? *order : FilterDesc({DType::kFloat32, p.geometry.filters.shape}, OrderOfGradient(p));
  const memory::desc d_bias =
      has_bias ? memory::desc(bias.dims(), memory::data_type::f32, memory::format_tag::x) : memory::desc();
  const dnnl::convolution_backward_weights::primitive_desc pd(
      {kDirect, p.images, d_filters, d_bias, p.output, p.strides, p.dilates, p.padding_before, p.padding_after},
      OnednnAttr(), OnednnEngine(), ForwardDesc(p, p.any_filters, OnednnAttr(), bias));
  std::vector<OnednnPrimitive::Argument> arguments{{DNNL_ARG_SRC, pd.src_desc()},
                                                   {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                                                   {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()},
                                                   {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}};
  if (has_bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, pd.diff_bias_desc()});
  return {.conv = OnednnPrimitive(dnnl::convolution_backward_weights(pd), arguments),
          .images = BytesOfImages(p.geometry.images, images.begin),
          .dy = BytesOfImages(p.geometry.output, images.begin),
          .scratchpad = scratch.Add(pd.scratchpad_desc().get_size()),
          .gradient = pd.diff_weights_desc(),
          .algorithm = OnednnAlgorithm(pd)};
}

// Conv2DBackpropFilter and FusedConv2DBackpropFilter.
absl::StatusOr<Kernel> MakeBackpropFilter(const KernelSpec& spec) {
  if (IsEmpty(spec)) return ZeroKernel(spec);
  const ConvGeometry geometry = ConvGeometryOf(spec.node);
  const FilterGradientParts division(geometry, spec.node.graph().batch_parts());
  const int64_t count = division.count();
  ScratchPlan scratch;
  std::vector<FilterGradientPart> parts;
  for (int64_t i = 0; i < count; ++i) {
    const OnednnParts one_thread(1);
    const memory::desc* const order = i == 0 ? nullptr : &parts[0].gradient;
    const Share images = division.images(i);
    parts.push_back(images.size() == 0 ? FilterGradientPart() : MakeFilterGradientPart(spec, images, order, scratch));
  }
  const memory::desc gradient = parts[0].gradient;
  const OnednnPrimitive copy = OnednnReorder(gradient, FilterDesc(geometry.filters, memory::format_tag::hwio));
  const bool has_bias = spec.node.num_outputs() > backprop_filter::kBiasGradient;
  OnednnPrimitive bias_copy;
  if (has_bias) {
    const memory::dims size = {geometry.filters.shape.dim(3)};
    bias_copy = OnednnReorder(memory::desc(size, memory::data_type::f32, memory::format_tag::x),
                              memory::desc(size, OnednnType(geometry.filters.dtype), memory::format_tag::x));
  }
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  const int64_t gradient_floats = static_cast<int64_t>(gradient.get_size()) / kFloatBytes;
  const int64_t bias_floats = has_bias ? geometry.filters.shape.dim(3) : 0;
  const int64_t gradients = scratch.Add(count * gradient_floats * kFloatBytes);
  const int64_t biases = scratch.Add(count * bias_floats * kFloatBytes);
  std::string algorithm = parts[0].algorithm;
  return Kernel{.run = [=, parts = std::move(parts)](const KernelArgs& args) -> absl::Status {
                  const auto* const images = static_cast<const char*>(args.inputs[backprop_filter::kImages]);
                  const auto* const dy = static_cast<const char*>(args.inputs[backprop_filter::kDy]);
                  auto* const d_filters = static_cast<float*>(ScratchAt(args, gradients));
                  auto* const d_bias = static_cast<float*>(ScratchAt(args, biases));
                  RETURN_IF_ERROR(RunParts(count, [&](int i) {
                    const FilterGradientPart& part = parts[i];
                    if (!part.conv) {
                      std::fill_n(d_filters + i * gradient_floats, gradient_floats, 0.0F);
                      std::fill_n(d_bias + i * bias_floats, bias_floats, 0.0F);
                      return absl::OkStatus();
                    }
                    const OnednnParts one_thread_for_it(1);
                    const void* const addresses[] = {images + part.images, dy + part.dy,
                                                     d_filters + i * gradient_floats, ScratchAt(args, part.scratchpad),
                                                     d_bias + i * bias_floats};
                    return part.conv.Run(absl::MakeConstSpan(addresses, has_bias ? 5 : 4));
                  }));
                  AddParts(d_filters, count, gradient_floats);
                  AddParts(d_bias, count, bias_floats);
                  if (has_bias) RETURN_IF_ERROR(bias_copy.Run({d_bias, args.outputs[backprop_filter::kBiasGradient]}));
                  return copy.Run({d_filters, args.outputs[backprop_filter::kFilterGradient]});
                },
                .scratch_bytes = scratch.bytes(),
                .algorithm = std::move(algorithm)};
}

// Which inputs are images, and whether output 0 is. The others (filters, biases) are row-major.
struct ImageValues {
  std::vector<int> inputs;
  bool output;
};
ImageValues ImagesOf(const Node& node) {
  if (node.Is(op::Conv2D) || node.Is(op::FusedConv2D)) return {{conv2d::kImages}, true};
  if (node.Is(op::Conv2DBackpropInput)) return {{backprop_input::kDy}, true};
  return {{backprop_filter::kImages, backprop_filter::kDy}, false};
}

LayoutChoice ConvLayouts(const Node& node, absl::Span<const Layout>) {
  LayoutChoice choice = AllRowMajor(node);
  const ConvGeometry geometry = ConvGeometryOf(node);
  const ImageValues images = ImagesOf(node);
  const auto can_block = [](const TensorType& type) { return type.shape.dim(3) % 16 == 0; };
  if (!HasAvx512() || !can_block(geometry.images) || !can_block(geometry.output)) return choice;
  if (MultipliesTiles(node)) return choice;
  for (const int i : images.inputs) choice.inputs[i] = Layout::kChannelBlocked;
  if (images.output) choice.outputs[0] = Layout::kChannelBlocked;
  return choice;
}

bool UsesOwnFilterGradient(const KernelSpec& spec) {
  return spec.node.Is(op::Conv2DBackpropFilter) && spec.input(backprop_filter::kImages).dtype == DType::kBFloat16 &&
         !IsEmpty(spec) && BFloat16FilterGradientSupports(ConvGeometryOf(spec.node));
}

// True where oneDNN 2.6.3 computes wrong numbers in bfloat16, or reads or writes memory that is not its own, at least
// for some sizes of images and batches. In float it is right there.
bool IsWrongInOnednn(const KernelSpec& spec) {
  const Node& node = spec.node;
  if (spec.input(0).dtype != DType::kBFloat16 || IsEmpty(spec)) return false;
  const ConvGeometry g = ConvGeometryOf(node);
  const WindowAxis &h = g.window.height, &w = g.window.width;
  const bool is_pixel = h.window == 1 && w.window == 1, has_tiles = MultipliesTiles(node);
  if (node.Is(op::Conv2DBackpropInput)) return is_pixel && g.output.shape.dim(3) % 2 != 0 && !has_tiles;
  if (node.Is(op::Conv2DBackpropFilter) || node.Is(op::FusedConv2DBackpropFilter)) {
    const int64_t channels = g.images.shape.dim(3);
    return (h.dilation > 1 && channels > 16 && channels % 16 != 0) || w.input < w.stride;
  }
  // Where the last windows end before the image does, the padding behind it is negative for oneDNN: here it and the
  // padding before the image add up to zero.
  const bool padding_cancels = w.before > 0 && w.Position(w.output - 1, w.window - 1) + 1 == w.input - w.before;
  // For tiles the rows of images are copied, but not for windows of one pixel without padding.
  const bool is_padded = h.before > 0 || h.after > 0 || w.before > 0 || w.after > 0;
  const bool skips_pixels = (h.window < h.stride || w.window < w.stride) && (!is_pixel || is_padded);
  const bool last_is_padding = h.stride > 1 && h.Position(h.output - 1, 0) >= h.input;
  return padding_cancels || (has_tiles && (skips_pixels || last_is_padding));
}

bool RegisterConv(OpName op, absl::StatusOr<Kernel> (*make)(const KernelSpec&)) {
  const KernelFactory factory = [op, make](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    return CatchOnednn(op.text(), [&] { return make(spec); });
  };
  return RegisterKernel({
      .op = op,
      .device_kind = "cpu",
      .dtypes = StorageTypes(),
      .make = [factory](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
        ASSIGN_OR_RETURN(const ConvAlgorithm algorithm, ChooseConvAlgorithm(spec));
        if (algorithm == ConvAlgorithm::kWinograd) return MakeWinogradConv(spec);
        if (UsesOwnFilterGradient(spec)) return MakeBFloat16FilterGradient(spec);
        const bool in_float = !OnednnComputesIn(spec.input(0).dtype) || IsWrongInOnednn(spec);
        return in_float ? ComputeInFloat(spec, factory) : factory(spec);
      },
      .layout = ConvLayouts,
  });
}

const bool registered[] = {
    RegisterConv(op::Conv2D, MakeForward),
    RegisterConv(op::FusedConv2D, MakeForward),
    RegisterConv(op::Conv2DBackpropInput, MakeBackpropInput),
    RegisterConv(op::Conv2DBackpropFilter, MakeBackpropFilter),
    RegisterConv(op::FusedConv2DBackpropFilter, MakeBackpropFilter),
};

}  // namespace
}  // namespace official::compute
