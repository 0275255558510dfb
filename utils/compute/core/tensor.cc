#include "utils/compute/core/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace official::compute {
namespace {

constexpr size_t kAlignment = 64;

std::shared_ptr<void> AllocateZeros(int64_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data, 0, rounded);
  return std::shared_ptr<void>(data, std::free);
}

}  // namespace

std::string TensorType::ToString() const { return absl::StrCat(DTypeName(dtype), shape.ToString()); }

Tensor::Tensor() : Tensor(DType::kFloat32, Shape()) {}

Tensor::Tensor(DType dtype, Shape shape) : type_{dtype, std::move(shape)}, data_(AllocateZeros(type_.num_bytes())) {}

Tensor::Tensor(TensorType type, void* data, std::shared_ptr<void> owner)
    : type_(std::move(type)), data_(std::shared_ptr<void>(std::move(owner), data)) {}

Tensor Tensor::Clone() const {
  Tensor copy(type_);
  std::memcpy(copy.raw_data(), raw_data(), num_bytes());
  return copy;
}

Tensor Tensor::Reshaped(Shape shape) const {
  OFFICIAL_CHECK(shape.num_elements() == num_elements()) << type_.ToString() << " as " << shape;
  Tensor result = *this;
  result.type_.shape = std::move(shape);
  return result;
}

Tensor Tensor::CastTo(DType dtype) const {
  Tensor result(dtype, shape());
  WithDType(type_.dtype, [&]<typename From>(From) {
    WithDType(dtype, [&]<typename To>(To) {
      const absl::Span<const From> from = flat<From>();
      std::transform(from.begin(), from.end(), result.data<To>(), ConvertElement<To, From>);
    });
  });
  return result;
}

std::optional<int64_t> FindNonFinite(const Tensor& tensor) {
  std::optional<int64_t> found;
  if (!IsFloating(tensor.dtype())) return found;
  WithDType(tensor.dtype(), [&]<typename T>(T) {
    const T* const x = tensor.data<T>();
    const int64_t n = tensor.num_elements();
    // A product with zero is zero for finite numbers and NaN for the others: a sum per block, without branches.
    constexpr int64_t kBlock = 4096;
    for (int64_t begin = 0; begin < n && !found; begin += kBlock) {
      const int64_t end = std::min(n, begin + kBlock);
      float zeros = 0;
#pragma omp simd reduction(+ : zeros)
      for (int64_t i = begin; i < end; ++i) zeros += static_cast<float>(x[i]) * 0.0f;
      if (zeros == 0) continue;
      for (int64_t i = begin; i < end && !found; ++i) {
        if (!std::isfinite(static_cast<float>(x[i]))) found = i;
      }
    }
  });
  return found;
}

}  // namespace official::compute
