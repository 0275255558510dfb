#include <immintrin.h>

#include <bit>
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

// The processor's own conversions (F16C) are the reference.
TEST_CASE("Every half becomes the float that it is") {
  for (int i = 0; i < 65536; ++i) {
    Half half;
    half.bits = static_cast<uint16_t>(i);
    const float got = static_cast<float>(half), want = _cvtsh_ss(static_cast<uint16_t>(i));
    if (std::isnan(want) ? !std::isnan(got) : std::bit_cast<uint32_t>(got) != std::bit_cast<uint32_t>(want)) {
      FAIL("half " << i << ": " << got << " instead of " << want);
    }
  }
}

TEST_CASE("Floats round to the nearest half, ties to even") {
  CHECK(Half(65504.0f).bits == 0x7bff);
  CHECK(Half(65519.0f).bits == 0x7bff);
  CHECK(Half(65520.0f).bits == 0x7c00);  // infinity
  CHECK(Half(0x1p-24f).bits == 1);
  CHECK(Half(0x1p-25f).bits == 0);
  CHECK(Half(0x1.8p-24f).bits == 2);
  // All bits that decide: sign, exponent, the fraction that stays, and around a tie those that go.
  for (uint32_t high = 0; high < 1 << 20; ++high) {
    for (const uint32_t low : {0u, 1u, 0x7ffu, 0x800u, 0xffeu, 0xfffu}) {
      const uint32_t bits = high << 12 | low;
      const auto x = std::bit_cast<float>(bits);
      const uint16_t got = Half(x).bits, want = _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
      if (got != want) FAIL(x << " (" << bits << "): " << got << " instead of " << want);
    }
  }
  static_assert(Half(1.0f).bits == 0x3c00 && static_cast<float>(Half(-2.5f)) == -2.5f);
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
