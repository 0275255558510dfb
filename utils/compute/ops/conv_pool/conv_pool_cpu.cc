// CPU kernels of the family. Callers see row-major images and HWIO filters; each image is padded, and its channels put
// into blocks of 16, in scratch memory that stays in a core's second cache.
//
// The images are divided into parts: for the filter gradient into ones that depend on the problem alone. The sums of a
// part are its own and are added up in the order of the parts, so that they do not depend on the number of threads.

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/cpu/compute_in_float.h"
#include "utils/compute/cpu/convert.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/conv_pool/geometry.h"

namespace official::compute {
namespace {

namespace forward = conv_pool;
namespace backprop = conv_pool_backprop;

// One gradient that is not zero: where its receptive field begins in the padded image (floats), and its value.
struct SparseGrad {
  int32_t offset;
  float value;
};

// One image's gradients that are not zero, by pixel of the convolution's output: see GatherPixels.
struct PixelGrads {
  int64_t row_capacity;
  int32_t* starts;   // [height][width + 1]
  int32_t* offsets;  // of the output channel in a row of the filter (floats)
  float* values;
};

// What depends on the instruction set; one image at a time.
struct ConvPoolKernels {
  int max_columns;  // output channels that forward_image handles at a time
  void (*forward_image)(const ConvPoolGeometry&, const float* padded, const float* packed_filter, const float* bias,
                        int columns, float* rows, float* output, uint8_t* codes);
  void (*pool_rows)(const float* row0, const float* row1, int64_t width, int columns, const float* bias, float* output,
                    uint8_t* codes, int64_t out_channels);
  void (*gather_grads)(const ConvPoolGeometry&, const uint8_t* codes, const float* d_output, SparseGrad* grads,
                       int32_t* counts, float* d_bias);
  void (*backward_filter)(const ConvPoolGeometry&, const float* padded, const SparseGrad* grads, const int32_t* counts,
                          float* d_filter);
  void (*backward_filter_single_channel)(const ConvPoolGeometry&, const float* padded, const uint8_t* codes,
                                         const float* d_output, float* d_filter, float* d_bias);
  void (*gather_pixels)(const ConvPoolGeometry&, const uint8_t* codes, const float* d_output, const PixelGrads&);
  void (*backward_input)(const ConvPoolGeometry&, const PixelGrads&, const float* filter, float* d_padded);
};

#define OFFICIAL_ISA_FILE "utils/compute/ops/conv_pool/conv_pool-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

const ConvPoolKernels& Kernels() { return HasAvx512() ? avx512::kConvPoolKernels : avx2::kConvPoolKernels; }

int64_t BlockOf(const ConvPoolGeometry& g) { return std::min<int64_t>(g.in_channels, 16); }

// The parts that the images are divided into, and scratch memory of each part.
struct Parts {
  int64_t images, parts;
  int64_t offset = 0, bytes = 0;  // in the kernel's scratch: of part 0, and of each

  explicit Parts(const ConvPoolGeometry& g)
      : images(g.batch),
        parts(NumThreads() == 1 ? 1 : std::clamp<int64_t>(4 * NumThreads(), 1, std::max<int64_t>(1, g.batch))) {}
  // For sums over the images, which must not depend on the number of threads: enough parts for 16 of them.
  Parts(const ConvPoolGeometry& g, int batch_parts) : images(g.batch), parts(int64_t{4} * batch_parts) {}
  void Place(const ScratchPlan& part, ScratchPlan& kernel) {
    bytes = part.bytes();
    offset = kernel.Add(parts * bytes);
  }
  template <typename T>
  T* At(const KernelArgs& args, int64_t part, int64_t part_offset) const {
    return static_cast<T*>(ScratchAt(args, offset + part * bytes + part_offset));
  }
  // Calls f(part, first image, last image) for each.
  template <typename F>
  void Run(F&& f) const {
    ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const Share share = ShareOf(images, part, parts);
        f(part, share.begin, share.end);
      }
    });
  }
};

// Whether some of the numbers it has seen were not finite. Such a number must not vanish because it would have been
// multiplied by one of the zeros that the backward kernels leave out: it makes NaN of what it would have been added to.
class FiniteCheck {
 public:
  void See(float x) { largest_ = std::max(largest_, std::bit_cast<uint32_t>(x) & 0x7fffffff); }
  // 0, or NaN if an infinity or NaN was seen.
  float ZeroOrNan() const { return largest_ < 0x7f800000 ? 0.0f : std::numeric_limits<float>::quiet_NaN(); }

 private:
  uint32_t largest_ = 0;  // of the magnitudes, as integers: the compiler may take the maximum in any order
};

// Floats of a padded image's place: the single-channel gradient reads whole vectors behind the end.
int64_t PaddedFloats(const ConvPoolGeometry& g) { return g.padded_size() + 16; }

// Where row y of the image begins in channel block b of a padded image.
int64_t PaddedRow(const ConvPoolGeometry& g, int64_t b, int64_t y) {
  const int64_t border = g.kernel / 2;
  return ((b * g.padded_height() + y + border) * g.padded_width() + border) * BlockOf(g);
}

// Copies an image [height, width, channels] into the middle of [channels / block][padded height][padded width][block],
// whose border the caller has set to zero.
void PadImage(const ConvPoolGeometry& g, const float* image, float* padded) {
  const int64_t block = BlockOf(g);
  for (int64_t b = 0; b < g.in_channels / block; ++b) {
    for (int64_t y = 0; y < g.height; ++y) {
      const float* from = image + y * g.width * g.in_channels + b * block;
      float* to = padded + PaddedRow(g, b, y);
      if (block == 1) {
        std::copy_n(from, g.width, to);
      } else {
        for (int64_t x = 0; x < g.width; ++x) std::memcpy(to + x * 16, from + x * g.in_channels, 16 * sizeof(float));
      }
    }
  }
}

// The way back, adding `channel_offset` [channels].
void CropImage(const ConvPoolGeometry& g, const float* padded, const float* channel_offset, float* image) {
  for (int64_t b = 0; b < g.in_channels / 16; ++b) {
    for (int64_t y = 0; y < g.height; ++y) {
      float* to = image + y * g.width * g.in_channels + b * 16;
      const float* from = padded + PaddedRow(g, b, y);
      for (int64_t x = 0; x < g.width; ++x, to += g.in_channels, from += 16) {
        for (int64_t c = 0; c < 16; ++c) to[c] = from[c] + channel_offset[b * 16 + c];
      }
    }
  }
}

// Adds NaN to zero_or_nan [channels] for the channels of a padded image (its border included) that are not all finite.
void CheckChannels(const ConvPoolGeometry& g, const float* padded, float* zero_or_nan) {
  const int64_t block = BlockOf(g), plane = g.padded_height() * g.padded_width() * block;
  for (int64_t b = 0; b < g.in_channels / block; ++b, padded += plane) {
    if (block == 1) {
      FiniteCheck check;
      for (int64_t i = 0; i < plane; ++i) check.See(padded[i]);
      zero_or_nan[b] += check.ZeroOrNan();
      continue;
    }
    FiniteCheck check[16];
    for (int64_t i = 0; i < plane; i += 16) {
      for (int64_t c = 0; c < 16; ++c) check[c].See(padded[i + c]);
    }
    for (int64_t c = 0; c < 16; ++c) zero_or_nan[b * 16 + c] += check[c].ZeroOrNan();
  }
}

// [tap][channels in][channels out] -> [column block][channel block][tap][channel in block][columns]
void PackForwardFilters(const ConvPoolGeometry& g, int64_t columns, const float* filters, float* packed) {
  const int64_t block = BlockOf(g), blocks = g.in_channels / block;
  ParallelFor(g.out_channels / columns * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t o = i / blocks, b = i % blocks;
      float* to = packed + i * g.taps() * block * columns;
      for (int64_t tap = 0; tap < g.taps(); ++tap) {
        for (int64_t c = 0; c < block; ++c, to += columns) {
          std::copy_n(filters + (tap * g.in_channels + b * block + c) * g.out_channels + o * columns, columns, to);
        }
      }
    }
  });
}

absl::StatusOr<Kernel> MakeForward(const KernelSpec& spec) {
  const ConvPoolGeometry g = ConvPoolGeometryOf(spec.node);
  const int64_t columns = g.out_channels % Kernels().max_columns == 0 ? Kernels().max_columns : 16;
  ScratchPlan scratch, part_scratch;
  const int64_t packed_at = scratch.Add(g.filter_size() * sizeof(float));
  const int64_t padded_at = part_scratch.Add(PaddedFloats(g) * sizeof(float));
  const int64_t rows_at = part_scratch.Add(2 * g.width * columns * sizeof(float));
  Parts parts(g);
  parts.Place(part_scratch, scratch);
  const auto run = [=](const KernelArgs& args) {
    float* const packed = static_cast<float*>(ScratchAt(args, packed_at));
    PackForwardFilters(g, columns, args.input<float>(forward::kFilters), packed);
    const int64_t image_size = g.height * g.width * g.in_channels;
    const int64_t output_size = g.pooled_height() * g.pooled_width() * g.out_channels;
    parts.Run([&](int64_t part, int64_t begin, int64_t end) {
      float* const padded = parts.At<float>(args, part, padded_at);
      std::fill_n(padded, PaddedFloats(g), 0.0f);
      for (int64_t n = begin; n < end; ++n) {
        PadImage(g, args.input<float>(forward::kImages) + n * image_size, padded);
        Kernels().forward_image(g, padded, packed, args.input<float>(forward::kBias), static_cast<int>(columns),
                                parts.At<float>(args, part, rows_at),
                                args.output<float>(forward::kPooled) + n * output_size,
                                args.output<uint8_t>(forward::kCodes) + n * output_size);
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = scratch.bytes()};
}

// MakeForward in bfloat16: a convolution of oneDNN, which multiplies it faster than floats, and the pool over its sums,
// which are floats.
absl::StatusOr<Kernel> MakeBFloat16Forward(const KernelSpec& spec) {
  using dnnl::memory;
  const ConvPoolGeometry g = ConvPoolGeometryOf(spec.node);
  const memory::dim border = g.kernel / 2;
  const auto bf16 = memory::data_type::bf16;
  const memory::desc images({g.batch, g.in_channels, g.height, g.width}, bf16, memory::format_tag::nhwc);
  const memory::dims filter_dims = {g.out_channels, g.in_channels, g.kernel, g.kernel};
  const memory::desc filters(filter_dims, bf16, memory::format_tag::hwio);
  const memory::desc sums({g.batch, g.out_channels, g.height, g.width}, memory::data_type::f32,
                          memory::format_tag::nhwc);
  const dnnl::convolution_forward::primitive_desc pd({dnnl::prop_kind::forward_training,
                                                      dnnl::algorithm::convolution_direct,
                                                      images,
                                                      memory::desc(filter_dims, bf16, memory::format_tag::any),
                                                      sums,
                                                      {1, 1},
                                                      {border, border},
                                                      {border, border}},
                                                     OnednnAttr(), OnednnEngine());
  const OnednnPrimitive pack = OnednnReorder(filters, pd.weights_desc());
  const OnednnPrimitive conv(dnnl::convolution_forward(pd), {{DNNL_ARG_SRC, images},
                                                             {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                                             {DNNL_ARG_DST, sums},
                                                             {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
  ScratchPlan scratch, part_scratch;
  const int64_t packed_at = scratch.Add(pd.weights_desc().get_size());
  const int64_t sums_at = scratch.Add(sums.get_size());
  const int64_t scratchpad_at = scratch.Add(pd.scratchpad_desc().get_size());
  const int64_t bias_at = scratch.Add(g.out_channels * sizeof(float));
  const int64_t row_size = g.pooled_width() * g.out_channels;
  const int64_t row_at = part_scratch.Add(row_size * sizeof(float));
  Parts parts(g);
  parts.Place(part_scratch, scratch);
  const auto run = [=](const KernelArgs& args) -> absl::Status {
    void* const packed = ScratchAt(args, packed_at);
    const float* const all_sums = static_cast<float*>(ScratchAt(args, sums_at));
    float* const bias = static_cast<float*>(ScratchAt(args, bias_at));
    RETURN_IF_ERROR(pack.Run({args.inputs[forward::kFilters], packed}));
    RETURN_IF_ERROR(conv.Run({args.inputs[forward::kImages], packed, all_sums, ScratchAt(args, scratchpad_at)}));
    ToFloats(args.input<BFloat16>(forward::kBias), bias, g.out_channels);
    parts.Run([&](int64_t part, int64_t begin, int64_t end) {
      float* const row = parts.At<float>(args, part, row_at);
      for (int64_t i = begin * g.pooled_height(); i < end * g.pooled_height(); ++i) {
        const float* const sums_of_row = all_sums + 2 * i * g.width * g.out_channels;
        Kernels().pool_rows(sums_of_row, sums_of_row + g.width * g.out_channels, g.width,
                            static_cast<int>(g.out_channels), bias, row,
                            args.output<uint8_t>(forward::kCodes) + i * row_size, g.out_channels);
        FromFloats(row, args.output<BFloat16>(forward::kPooled) + i * row_size, row_size);
      }
    });
    return absl::OkStatus();
  };
  return Kernel{
      .run = run, .scratch_bytes = scratch.bytes(), .algorithm = absl::StrCat(OnednnAlgorithm(pd), ", then the pool")};
}

// True if MakeBFloat16Forward is the better one. A vector of a single channel would be mostly empty.
bool UsesBFloat16Forward(const KernelSpec& spec) {
  const ConvPoolGeometry g = ConvPoolGeometryOf(spec.node);
  return spec.node.Is(op::FusedConv2DReluMaxPool) && spec.input(forward::kImages).dtype == DType::kBFloat16 &&
         OnednnComputesIn(DType::kBFloat16) && g.in_channels > 1 && g.batch > 0;
}

absl::StatusOr<Kernel> MakeBackpropFilter(const KernelSpec& spec) {
  const ConvPoolGeometry g = ConvPoolGeometryOf(spec.node);
  const bool single = g.in_channels == 1;
  const int64_t windows = g.pooled_height() * g.pooled_width();
  ScratchPlan scratch, part_scratch;
  const int64_t padded_at = part_scratch.Add(PaddedFloats(g) * sizeof(float));
  // One more: what is dead is stored too, behind the last.
  const int64_t grads_at = part_scratch.Add(single ? 0 : (g.out_channels * windows + 1) * sizeof(SparseGrad));
  const int64_t counts_at = part_scratch.Add(g.out_channels * sizeof(int32_t));
  const int64_t d_filter_at = part_scratch.Add(g.filter_size() * sizeof(float));
  const int64_t d_bias_at = part_scratch.Add(g.out_channels * sizeof(float));
  const int64_t zero_or_nan_at = part_scratch.Add(g.in_channels * sizeof(float));
  Parts parts(g, spec.node.graph().batch_parts());
  parts.Place(part_scratch, scratch);

  const auto run = [=](const KernelArgs& args) {
    parts.Run([&](int64_t part, int64_t begin, int64_t end) {
      const auto at = [&](int64_t offset) { return parts.At<float>(args, part, offset); };
      SparseGrad* const grads = parts.At<SparseGrad>(args, part, grads_at);
      int32_t* const counts = parts.At<int32_t>(args, part, counts_at);
      float *const padded = at(padded_at), *const d_filter = at(d_filter_at), *const d_bias = at(d_bias_at);
      std::fill_n(padded, PaddedFloats(g), 0.0f);
      std::fill_n(d_filter, g.filter_size(), 0.0f);
      std::fill_n(d_bias, g.out_channels, 0.0f);
      std::fill_n(at(zero_or_nan_at), g.in_channels, 0.0f);
      for (int64_t n = begin; n < end; ++n) {
        PadImage(g, args.input<float>(backprop::kImages) + n * g.height * g.width * g.in_channels, padded);
        CheckChannels(g, padded, at(zero_or_nan_at));
        const uint8_t* const codes = args.input<uint8_t>(backprop::kCodes) + n * windows * g.out_channels;
        const float* const d_output = args.input<float>(backprop::kPooledGradient) + n * windows * g.out_channels;
        if (single) {
          Kernels().backward_filter_single_channel(g, padded, codes, d_output, d_filter, d_bias);
        } else {
          Kernels().gather_grads(g, codes, d_output, grads, counts, d_bias);
          Kernels().backward_filter(g, padded, grads, counts, d_filter);
        }
      }
    });
    const auto sum_parts = [&](int64_t offset, int64_t i) {
      return TreeSum(0, parts.parts, [&](int64_t part) { return parts.At<float>(args, part, offset)[i]; });
    };
    float* const d_filters = args.output<float>(backprop::kFilterGradient);
    float* const d_bias = args.output<float>(backprop::kBiasGradient);
    for (int64_t oc = 0; oc < g.out_channels; ++oc) d_bias[oc] = sum_parts(d_bias_at, oc);
    ParallelFor(g.taps() * g.in_channels, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t tap = i / g.in_channels, ic = i % g.in_channels;
        const float zero_or_nan = sum_parts(zero_or_nan_at, ic);
        for (int64_t oc = 0; oc < g.out_channels; ++oc) {
          // A part has [tap][channels out] for one channel in, else [channel block][channels out][tap][16].
          const int64_t at =
              single ? i * g.out_channels + oc : ((ic / 16 * g.out_channels + oc) * g.taps() + tap) * 16 + ic % 16;
          d_filters[i * g.out_channels + oc] = sum_parts(d_filter_at, at) + zero_or_nan;
        }
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = scratch.bytes()};
}

// [tap row][tap column][channels in][channels out] -> [channel block][tap row][channels out][tap column][16], and
// zero_or_nan [channel block][tap row][16]: NaN for the channels that are not all finite in this row.
void PackBackwardFilters(const ConvPoolGeometry& g, const float* filters, float* packed, float* zero_or_nan) {
  ParallelFor(g.in_channels / 16 * g.kernel, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i / g.kernel, y = i % g.kernel;
      for (int64_t c = 0; c < 16; ++c) {
        FiniteCheck check;
        for (int64_t x = 0; x < g.kernel; ++x) {
          const float* from = filters + ((y * g.kernel + x) * g.in_channels + block * 16 + c) * g.out_channels;
          float* to = packed + (i * g.out_channels * g.kernel + x) * 16 + c;
          for (int64_t oc = 0; oc < g.out_channels; ++oc) {
            check.See(from[oc]);
            to[oc * g.kernel * 16] = from[oc];
          }
        }
        zero_or_nan[i * 16 + c] = check.ZeroOrNan();
      }
    }
  });
}

absl::StatusOr<Kernel> MakeBackpropInput(const KernelSpec& spec) {
  const ConvPoolGeometry g = ConvPoolGeometryOf(spec.node);
  // A row has one gradient for each window at most; whole vectors are stored.
  const int64_t row_capacity = g.pooled_width() * g.out_channels + 16;
  ScratchPlan scratch, part_scratch;
  const int64_t packed_at = scratch.Add(g.filter_size() * sizeof(float));
  const int64_t zero_or_nan_at = scratch.Add(g.in_channels * g.kernel * sizeof(float));
  const int64_t channel_offset_at = scratch.Add(g.in_channels * sizeof(float));
  const int64_t d_padded_at = part_scratch.Add(PaddedFloats(g) * sizeof(float));
  const int64_t starts_at = part_scratch.Add(g.height * (g.width + 1) * sizeof(int32_t));
  const int64_t offsets_at = part_scratch.Add(g.height * row_capacity * sizeof(int32_t));
  const int64_t values_at = part_scratch.Add(g.height * row_capacity * sizeof(float));
  Parts parts(g);
  parts.Place(part_scratch, scratch);

  const auto run = [=](const KernelArgs& args) {
    float* const packed = static_cast<float*>(ScratchAt(args, packed_at));
    float* const zero_or_nan = static_cast<float*>(ScratchAt(args, zero_or_nan_at));
    float* const channel_offset = static_cast<float*>(ScratchAt(args, channel_offset_at));
    PackBackwardFilters(g, args.input<float>(backprop::kFilters), packed, zero_or_nan);
    for (int64_t ic = 0; ic < g.in_channels; ++ic) {
      channel_offset[ic] = 0;
      for (int64_t y = 0; y < g.kernel; ++y) {
        channel_offset[ic] += zero_or_nan[(ic / 16 * g.kernel + y) * 16 + ic % 16];
      }
    }
    parts.Run([&](int64_t part, int64_t begin, int64_t end) {
      const PixelGrads pixels = {.row_capacity = row_capacity,
                                 .starts = parts.At<int32_t>(args, part, starts_at),
                                 .offsets = parts.At<int32_t>(args, part, offsets_at),
                                 .values = parts.At<float>(args, part, values_at)};
      float* const d_padded = parts.At<float>(args, part, d_padded_at);
      for (int64_t n = begin; n < end; ++n) {
        const int64_t at = n * g.pooled_height() * g.pooled_width() * g.out_channels;
        std::fill_n(d_padded, g.padded_size(), 0.0f);
        Kernels().gather_pixels(g, args.input<uint8_t>(backprop::kCodes) + at,
                                args.input<float>(backprop::kPooledGradient) + at, pixels);
        Kernels().backward_input(g, pixels, packed, d_padded);
        CropImage(g, d_padded, channel_offset, args.output<float>(0) + n * g.height * g.width * g.in_channels);
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = scratch.bytes()};
}

// Gradients in bfloat16 are converted, which costs little beside what they save: they skip three of four pixels, which
// oneDNN's products do not.
bool RegisterConvPool(OpName op, const KernelFactory& make) {
  return RegisterKernel({.op = op,
                         .device_kind = "cpu",
                         .dtypes = {DType::kFloat32, DType::kBFloat16},
                         .make = [op, make](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
                           if (UsesBFloat16Forward(spec))
                             return CatchOnednn(op.text(), [&] { return MakeBFloat16Forward(spec); });
                           return spec.input(0).dtype == DType::kFloat32 ? make(spec) : ComputeInFloat(spec, make);
                         }});
}

const bool registered[] = {
    RegisterConvPool(op::FusedConv2DReluMaxPool, MakeForward),
    RegisterConvPool(op::FusedConv2DReluMaxPoolBackpropFilter, MakeBackpropFilter),
    RegisterConvPool(op::FusedConv2DReluMaxPoolBackpropInput, MakeBackpropInput),
};

}  // namespace
}  // namespace official::compute
