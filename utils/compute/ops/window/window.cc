#include "utils/compute/ops/window/window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::compute {
namespace {

absl::StatusOr<WindowAxis> ResolveAxis(absl::string_view name, const std::string& padding, WindowAxis axis) {
  if (axis.stride < 1 || axis.dilation < 1 || axis.window < 1 || axis.before < 0 || axis.after < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": window ", axis.window, ", stride ", axis.stride, ", dilation ", axis.dilation, ", padding ",
        axis.before, " and ", axis.after, "; the first three must be at least 1, the paddings at least 0"));
  }
  const int64_t reach = (axis.window - 1) * axis.dilation + 1;
  if (padding == "SAME") {
    axis.output = (axis.input + axis.stride - 1) / axis.stride;
    const int64_t total = std::max<int64_t>((axis.output - 1) * axis.stride + reach - axis.input, 0);
    axis.before = total / 2;
    axis.after = total - axis.before;
  } else {
    const int64_t padded = axis.before + axis.input + axis.after;
    if (padded < reach) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": a window that reaches over ", reach,
                                                     " does not fit into ", padded, " (", axis.input,
                                                     " and padding); try padding SAME"));
    }
    axis.output = (padded - reach) / axis.stride + 1;
  }
  return axis;
}

}  // namespace

Attrs WindowAttrs(const WindowParams& params) {
  Attrs attrs{
      {"strides", std::vector<int64_t>{params.stride.height, params.stride.width}},
      {"dilations", std::vector<int64_t>{params.dilation.height, params.dilation.width}},
      {"padding", std::string(params.padding == Padding::kSame    ? "SAME"
                              : params.padding == Padding::kValid ? "VALID"
                                                                  : "EXPLICIT")},
  };
  const Border border = params.padding == Padding::kExplicit ? params.border : Border{};
  attrs.Set("explicit_paddings", std::vector<int64_t>{border.top, border.bottom, border.left, border.right});
  return attrs;
}

absl::StatusOr<Window2D> ResolveWindow(const Attrs& attrs, const Shape& images, Size2D window) {
  const std::vector<int64_t>& stride = attrs.GetInts("strides");
  const std::vector<int64_t>& dilation = attrs.GetInts("dilations");
  const std::vector<int64_t>& border = attrs.GetInts("explicit_paddings");
  const std::string& padding = attrs.Get<std::string>("padding");
  Window2D result;
  ASSIGN_OR_RETURN(result.height, ResolveAxis("height", padding,
                                              {.input = images.dim(1),
                                               .window = window.height,
                                               .stride = stride[0],
                                               .dilation = dilation[0],
                                               .before = border[0],
                                               .after = border[1]}));
  ASSIGN_OR_RETURN(result.width, ResolveAxis("width", padding,
                                             {.input = images.dim(2),
                                              .window = window.width,
                                              .stride = stride[1],
                                              .dilation = dilation[1],
                                              .before = border[2],
                                              .after = border[3]}));
  return result;
}

}  // namespace official::compute
