#include "utils/compute/ops/reorder/reorder.h"

#include <catch2/catch.hpp>

#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

Tensor Blocked(const Tensor& x) {
  // What the program gives back is row-major again, so both ways are taken.
  return testing::RunOnCpu({x}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Reorder(in[0], Layout::kRowMajor, Layout::kChannelBlocked)};
  })[0];
}

TEST_CASE("Images come back as they went through the blocked layout") {
  for (const int64_t channels : {16, 48}) {
    const Tensor x = testing::RandomTensor({3, 5, 7, channels}, 1);
    for (const DType dtype : StorageTypes()) {
      const Tensor given = x.CastTo(dtype);
      CHECK(testing::ToDoubles(Blocked(given)) == testing::ToDoubles(given));
    }
    // What comparisons and casts make of images.
    for (const DType dtype : {DType::kUInt8, DType::kBool, DType::kInt32, DType::kInt64}) {
      const Tensor codes = testing::RandomInts({3, 5, 7, channels}, 2, dtype == DType::kBool ? 2 : 256).CastTo(dtype);
      CHECK(testing::ToDoubles(Blocked(codes)) == testing::ToDoubles(codes));
    }
  }
}

TEST_CASE("Every half comes back as it was, denormals too") {
  Tensor all(DType::kFloat16, {2, 32, 16, 64});
  for (int i = 0; i < 65536; ++i) all.data<Half>()[i].bits = static_cast<uint16_t>(i);
  const Tensor back = Blocked(all);
  int changed = 0;
  for (int i = 0; i < 65536; ++i) {
    const bool is_nan = (i & 0x7fff) > 0x7c00;
    const int now = back.data<Half>()[i].bits;
    changed += is_nan ? (now & 0x7fff) <= 0x7c00 : now != i;
  }
  CHECK(changed == 0);
}

TEST_CASE("Seen from outside, values and gradients pass as they are") {
  const testing::OpCase test{
      .op = op::Reorder,
      .inputs = {testing::RandomTensor({2, 3, 4, 16}, 1)},
      .build =
          [](absl::Span<const Value> in) {
            return std::vector<Value>{Reorder(in[0], Layout::kRowMajor, Layout::kChannelBlocked)};
          },
      .reference = [](const std::vector<testing::Doubles>& in) { return in; },
  };
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("The blocked layout keeps 16 channels of a pixel together") {
  constexpr int64_t kHeight = 3, kWidth = 4, kChannels = 32;
  const Tensor x = testing::RandomTensor({2, kHeight, kWidth, kChannels}, 3);
  Graph graph;
  const Value y = Reorder(graph.Input("x", x.type()), Layout::kRowMajor, Layout::kChannelBlocked);
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  const Layout layouts[] = {Layout::kRowMajor, Layout::kChannelBlocked};
  const Kernel kernel = KernelRegistry::Global()
                            .Find(op::Reorder, "cpu", DType::kFloat32)
                            ->make({*y.node(), *device, absl::MakeSpan(layouts, 1), absl::MakeSpan(layouts + 1, 1)})
                            .value();
  const Tensor blocked(x.type());
  const void* const inputs[] = {x.raw_data()};
  void* const outputs[] = {blocked.raw_data()};
  REQUIRE(kernel.run({inputs, outputs}).ok());
  // [N, C / 16, H, W, 16]
  int64_t i = 0;
  bool all_equal = true;
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t block = 0; block < kChannels; block += 16) {
      for (int64_t pixel = 0; pixel < kHeight * kWidth; ++pixel) {
        for (int64_t c = block; c < block + 16; ++c) {
          const float wanted = x.data<float>()[(n * kHeight * kWidth + pixel) * kChannels + c];
          all_equal &= blocked.data<float>()[i++] == wanted;
        }
      }
    }
  }
  CHECK(all_equal);
}

TEST_CASE("Channels that do not divide are refused") {
  const absl::Status status = testing::BuildStatus({{DType::kFloat32, {1, 2, 2, 20}}}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Reorder(in[0], Layout::kRowMajor, Layout::kChannelBlocked)};
  });
  CHECK_THAT(std::string(status.message()), Catch::Contains("multiple of 16"));
}

}  // namespace
}  // namespace official::compute
