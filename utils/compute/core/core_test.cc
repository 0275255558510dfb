#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

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

}  // namespace
}  // namespace official::compute
