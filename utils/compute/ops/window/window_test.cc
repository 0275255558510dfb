#include "utils/compute/ops/window/window.h"

#include <catch2/catch.hpp>

namespace official::compute {
namespace {

WindowAxis Height(int64_t input, int64_t window, const WindowParams& params) {
  return ResolveWindow(WindowAttrs(params), {1, input, 1, 1}, {window, 1}).value().height;
}

// The expected sizes are those of TensorFlow: out = ceil(in / stride), total = max((out - 1) stride + k - in, 0), half
// of it (rounded down) before the image.
TEST_CASE("SAME padding puts the odd row after the image") {
  const WindowAxis one = Height(28, 5, {});
  CHECK((one.output == 28 && one.before == 2 && one.after == 2));
  const WindowAxis two = Height(28, 2, {.stride = {2, 2}});
  CHECK((two.output == 14 && two.before == 0 && two.after == 0));
  const WindowAxis odd = Height(7, 2, {.stride = {2, 2}});
  CHECK((odd.output == 4 && odd.before == 0 && odd.after == 1));
  const WindowAxis imagenet = Height(112, 3, {.stride = {2, 2}});
  CHECK((imagenet.output == 56 && imagenet.before == 0 && imagenet.after == 1));
  const WindowAxis dilated = Height(10, 3, {.dilation = {2, 2}});
  CHECK((dilated.output == 10 && dilated.before == 2 && dilated.after == 2));
}

TEST_CASE("VALID and explicit padding leave out windows that do not fit") {
  CHECK(Height(7, 2, {.stride = {2, 2}, .padding = Padding::kValid}).output == 3);
  CHECK(Height(224, 7, {.stride = {2, 2}, .padding = Padding::kExplicit, .border = {3, 3, 3, 3}}).output == 112);
}

TEST_CASE("The part of a window inside the image is known") {
  const WindowAxis axis = Height(7, 3, {.stride = {3, 3}, .dilation = {2, 2}});
  // out 3, reach 5, total (3 - 1) 3 + 5 - 7 = 4: window 0 reads -2 0 2, window 1 reads 1 3 5, window 2 reads 4 6 8.
  REQUIRE((axis.output == 3 && axis.before == 2));
  CHECK((axis.FirstInside(0) == 1 && axis.LastInside(0) == 3));
  CHECK((axis.FirstInside(1) == 0 && axis.LastInside(1) == 3));
  CHECK((axis.FirstInside(2) == 0 && axis.LastInside(2) == 2));
}

TEST_CASE("Windows that cannot slide say why") {
  const auto error = [](int64_t input, int64_t window, const WindowParams& params) {
    return std::string(ResolveWindow(WindowAttrs(params), {1, input, 1, 1}, {window, 1}).status().message());
  };
  CHECK_THAT(error(3, 5, {.padding = Padding::kValid}), Catch::Contains("reaches over 5 does not fit into 3"));
  CHECK_THAT(error(3, 3, {.stride = {0, 1}}), Catch::Contains("stride 0"));
  CHECK_THAT(error(3, 3, {.padding = Padding::kExplicit, .border = {-1, 0, 0, 0}}), Catch::Contains("padding -1"));
}

}  // namespace
}  // namespace official::compute
