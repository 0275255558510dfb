// Data for tests.
#pragma once

#include <cstdint>

#include "utils/compute/core/tensor.h"
#include "utils/data/dataset.h"

namespace official::keras {

// Returns the points i / 10 of y = 2 x + 1, for i below `count`.
inline data::DatasetPtr Line(int64_t count) {
  compute::Tensor x(compute::DType::kFloat32, {count, 1}), y(compute::DType::kFloat32, {count, 1});
  for (int64_t i = 0; i < count; ++i) {
    x.data<float>()[i] = static_cast<float>(i) / 10;
    y.data<float>()[i] = 2 * x.data<float>()[i] + 1;
  }
  return data::TensorSlices({{"", x}}, {{"", y}});
}

}  // namespace official::keras
