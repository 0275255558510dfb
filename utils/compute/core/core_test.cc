#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/tensor.h"

namespace official::compute {
namespace {

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  // Random123 kat_vectors: philox4x32 10.
  CHECK(Philox(0, Philox4{0, 0, 0, 0}) == Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox(0xffffffffffffffff, Philox4{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) ==
        Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox(0x299f31d0a4093822, Philox4{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("BFloat16 rounds to nearest even and keeps NaN and infinity") {
  CHECK(static_cast<float>(BFloat16(1.0f)) == 1.0f);
  CHECK(static_cast<float>(BFloat16(1.00390625f)) == 1.0f);       // a tie goes to the even neighbour below
  CHECK(static_cast<float>(BFloat16(1.01171875f)) == 1.015625f);  // and above
  CHECK(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isinf(static_cast<float>(BFloat16(std::numeric_limits<float>::infinity()))));
}

TEST_CASE("Tensors share bytes, clone, reshape and cast") {
  const Tensor a = Tensor::Of<float>({2, 2}, {1.5f, -2.5f, 0, 4});
  CHECK(a.type().ToString() == "float32[2,2]");
  CHECK(a.Reshaped({4}).data<float>() == a.data<float>());
  CHECK(a.Clone().data<float>() != a.data<float>());
  const Tensor ints = a.CastTo(DType::kInt32);
  CHECK(ints.data<int32_t>()[1] == -2);
  CHECK(a.CastTo(DType::kBool).data<bool>()[2] == false);
  CHECK(reinterpret_cast<uintptr_t>(a.raw_data()) % 64 == 0);
}

TEST_CASE("An empty dimension makes an empty tensor, no dimension a scalar") {
  CHECK(Tensor(DType::kFloat32, {0, 3}).num_elements() == 0);
  CHECK(Tensor::Scalar<int64_t>(7).scalar<int64_t>() == 7);
  CHECK(Shape({2, 3, 4}).dim(-1) == 4);
}

TEST_CASE("Shares of a batch cover it, differ by one at most, and nest") {
  for (int64_t n = 0; n < 200; ++n) {
    for (const int parts : {1, 2, 3, 4, 7}) {
      int64_t next = 0;
      for (int p = 0; p < parts; ++p) {
        const Share share = ShareOf(n, p, parts);
        CHECK(share.begin == next);
        CHECK(share.size() <= ShareOf(n, 0, parts).size());
        CHECK((share.size() == n / parts || share.size() == n / parts + 1));
        next = share.end;
      }
      CHECK(next == n);
    }
    for (int p = 0; p < 4; ++p) {
      const Share half = ShareOf(n, p / 2, 2), part = ShareOf(half.size(), p % 2, 2), quarter = ShareOf(n, p, 4);
      CHECK(half.begin + part.begin == quarter.begin);
      CHECK(half.begin + part.end == quarter.end);
    }
  }
  for (const int replicas : {1, 2, 4}) CHECK(replicas * BatchPartsOfReplica(replicas) == 4);
  for (const int replicas : {3, 5, 8}) CHECK(BatchPartsOfReplica(replicas) == 1);
}

TEST_CASE("TreeSum adds halves") {
  const float values[] = {1, 0x1p-24f, 0x1p-24f, 0x1p-24f, 0x1p-24f};
  const auto value = [&](int64_t i) { return values[i]; };
  CHECK(TreeSum(0, 1, value) == 1);
  CHECK(TreeSum(0, 3, value) == 1);             // (1 + tiny) + tiny
  CHECK(TreeSum(0, 4, value) == 1 + 0x1p-23f);  // (1 + tiny) + (tiny + tiny)
  CHECK(TreeSum(0, 5, value) == 1 + 0x1p-23f);  // ((1 + tiny) + tiny) + (tiny + tiny)
}

}  // namespace
}  // namespace official::compute
