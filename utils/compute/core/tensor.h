// Tensor: a dense row-major array in host memory. Copying a Tensor shares its bytes; Clone() copies them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/shape.h"

namespace official::compute {

// The dtype and shape: all that is known of a value before it is computed.
struct TensorType {
  DType dtype = DType::kFloat32;
  Shape shape;

  int64_t num_bytes() const { return SizeOf(dtype) * shape.num_elements(); }
  // Returns text such as "float32[2,3]".
  std::string ToString() const;
  friend bool operator==(const TensorType& a, const TensorType& b) = default;
};

class Tensor {
 public:
  // A float32 scalar 0.
  Tensor();
  // A tensor of zeros. The buffer starts at a multiple of 64 bytes.
  Tensor(DType dtype, Shape shape);
  explicit Tensor(const TensorType& type) : Tensor(type.dtype, type.shape) {}
  // A view of bytes that the caller keeps alive, or `owner` if one is given.
  Tensor(TensorType type, void* data, std::shared_ptr<void> owner = nullptr);

  // A tensor of `values`, one for each element of the shape: Tensor::Of<float>({2, 2}, {1, 2, 3, 4}).
  template <typename T>
  static Tensor Of(Shape shape, absl::Span<const T> values);
  template <typename T>
  static Tensor Of(Shape shape, std::initializer_list<T> values) {
    return Of<T>(std::move(shape), absl::MakeConstSpan(values.begin(), values.size()));
  }
  template <typename T>
  static Tensor Scalar(T value) {
    return Of<T>({}, {value});
  }

  const TensorType& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  int64_t num_elements() const { return type_.shape.num_elements(); }
  int64_t num_bytes() const { return type_.num_bytes(); }

  void* raw_data() const { return data_.get(); }
  // The elements; T must be the C++ type of dtype().
  template <typename T>
  T* data() const {
    OFFICIAL_CHECK(DTypeOf<T>() == dtype()) << "tensor is " << type_.ToString();
    return static_cast<T*>(raw_data());
  }
  template <typename T>
  absl::Span<T> flat() const {
    return absl::MakeSpan(data<T>(), num_elements());
  }
  template <typename T>
  T scalar() const {
    OFFICIAL_CHECK(num_elements() == 1) << "tensor is " << type_.ToString();
    return *data<T>();
  }

  Tensor Clone() const;
  // The same bytes under another shape with the same number of elements.
  Tensor Reshaped(Shape shape) const;
  // A copy with every element converted (float to integer truncates, to bool is != 0).
  Tensor CastTo(DType dtype) const;

 private:
  TensorType type_;
  std::shared_ptr<void> data_;
};

// The row-major index of the first element that is NaN or infinite; nullopt if all are finite or the type is not
// floating.
std::optional<int64_t> FindNonFinite(const Tensor& tensor);

template <typename T>
Tensor Tensor::Of(Shape shape, absl::Span<const T> values) {
  Tensor result(DTypeOf<T>(), std::move(shape));
  OFFICIAL_CHECK(result.num_elements() == static_cast<int64_t>(values.size()))
      << values.size() << " values for " << result.type().ToString();
  std::copy(values.begin(), values.end(), result.data<T>());
  return result;
}

}  // namespace official::compute
