#include "utils/distribute/tensor_bytes.h"

#include <catch2/catch.hpp>
#include <vector>

namespace official::distribute {
namespace {

using compute::DType;
using compute::Tensor;

TEST_CASE("Tensors come back from their bytes, in order") {
  const std::vector<Tensor> tensors = {Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}), Tensor::Scalar<int64_t>(-7),
                                       Tensor(DType::kFloat32, {0, 4}), Tensor::Scalar(true)};
  std::string bytes;
  for (const Tensor& tensor : tensors) AppendTensor(tensor, bytes);
  AppendNumber(12, bytes);
  absl::string_view rest = bytes;
  for (const Tensor& tensor : tensors) {
    const Tensor taken = TakeTensor(rest).value();
    REQUIRE(taken.type() == tensor.type());
    const auto* const data = static_cast<const char*>(taken.raw_data());
    const auto* const expected = static_cast<const char*>(tensor.raw_data());
    CHECK(std::string(data, data + taken.num_bytes()) == std::string(expected, expected + tensor.num_bytes()));
  }
  CHECK(TakeNumber(rest).value() == 12);
  CHECK(rest.empty());
}

TEST_CASE("Texts and types come back from their bytes, in order") {
  const compute::TensorType type = {DType::kInt32, {2, 0, 5}};
  std::string bytes;
  AppendText("dense/kernel", bytes);
  AppendType(type, bytes);
  AppendText("", bytes);
  absl::string_view rest = bytes;
  CHECK(TakeText(rest).value() == "dense/kernel");
  CHECK(TakeType(rest).value() == type);
  CHECK(TakeText(rest).value().empty());
  CHECK(rest.empty());
  CHECK(absl::IsDataLoss(TakeText(rest).status()));
  absl::string_view cut = absl::string_view(bytes).substr(0, 10);
  CHECK(absl::IsDataLoss(TakeText(cut).status()));
  std::string negative;
  AppendNumber(-1, negative);
  absl::string_view no_text = negative;
  CHECK(absl::IsDataLoss(TakeText(no_text).status()));
}

TEST_CASE("Bytes that are no tensor are damaged") {
  const auto code = [](const std::vector<int64_t>& numbers) {
    std::string bytes;
    for (const int64_t number : numbers) AppendNumber(number, bytes);
    absl::string_view rest = bytes;
    return TakeTensor(rest).status().code();
  };
  const auto dtype = static_cast<int64_t>(DType::kInt64);
  REQUIRE(code({dtype, 1, 2, 10, 20}) == absl::StatusCode::kOk);
  CHECK(code({}) == absl::StatusCode::kDataLoss);
  CHECK(code({-1, 1, 2, 10, 20}) == absl::StatusCode::kDataLoss);
  CHECK(code({99, 1, 2, 10, 20}) == absl::StatusCode::kDataLoss);
  CHECK(code({dtype, -1, 2, 10, 20}) == absl::StatusCode::kDataLoss);  // else a scalar
  CHECK(code({dtype, 7, 2, 10, 20}) == absl::StatusCode::kDataLoss);
  CHECK(code({dtype, 1, -2, 10, 20}) == absl::StatusCode::kDataLoss);
  CHECK(code({dtype, 1, 3, 10, 20}) == absl::StatusCode::kDataLoss);
  CHECK(code({dtype, 2, int64_t{1} << 32, int64_t{1} << 32, 10}) == absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace official::distribute
