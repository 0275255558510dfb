#include "utils/compute/ops/checksum/checksum.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

std::vector<int64_t> Checksums(const std::string& kind, const std::vector<Tensor>& tensors) {
  const Tensor sums =
      testing::RunOn(kind, tensors, [](absl::Span<const Value> in) { return std::vector<Value>{Checksum(in)}; })[0];
  return {sums.data<int64_t>(), sums.data<int64_t>() + sums.num_elements()};
}

// The definition, for tensors of whole words.
int64_t ChecksumOf(const Tensor& tensor) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < tensor.num_bytes() / 4; ++i) {
    uint32_t word;
    std::memcpy(&word, static_cast<const char*>(tensor.raw_data()) + 4 * i, 4);
    uint64_t z = word + 0x9e3779b97f4a7c15u * (i + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    sum += z ^ (z >> 31);
  }
  return static_cast<int64_t>(sum);
}

TEST_CASE("A checksum is the sum of its words' terms, for every type and size") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  INFO(kind);
  for (const DType dtype : StorageTypesAnd({DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool})) {
    std::vector<Tensor> tensors;
    for (const int64_t elements : {4, 0, 100, 40000}) {
      tensors.push_back(testing::RandomInts({elements}, 1, 200).CastTo(dtype));
    }
    std::vector<int64_t> wanted;
    for (const Tensor& tensor : tensors) wanted.push_back(ChecksumOf(tensor));
    CHECK(Checksums(kind, tensors) == wanted);
  }
}

TEST_CASE("Tensors that differ in a bit, in an order or in a last byte have other checksums") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  INFO(kind);
  const Tensor x = testing::RandomTensor({1000}, 1);
  std::vector<Tensor> tensors = {x, x.Clone(), x.Clone()};
  auto* const words = static_cast<uint32_t*>(tensors[1].raw_data());
  words[999] ^= 1;
  std::swap(tensors[2].data<float>()[3], tensors[2].data<float>()[4]);
  for (const uint8_t last : {0, 1, 128}) {
    Tensor odd(DType::kUInt8, {7});
    odd.data<uint8_t>()[6] = last;
    tensors.push_back(odd);
  }
  const std::vector<int64_t> sums = Checksums(kind, tensors);
  CHECK(std::set<int64_t>(sums.begin(), sums.end()).size() == sums.size());
  CHECK(Checksums(kind, {x.Clone()})[0] == sums[0]);
}

TEST_CASE("Without a tensor there is no checksum") {
  Graph graph;
  graph.AddNode(op::Checksum, {}, {});
  CHECK_THAT(std::string(graph.status().message()), Catch::Contains("needs at least one tensor"));
}

}  // namespace
}  // namespace official::compute
