// Products of float32 matrices on processors without AVX-512, where oneDNN rounds differently with the number of
// threads and of rows: it splits a long sum among threads, and has several kernels. Here each element is one sum in the
// order of k, whatever else is computed with it, so that the bits are the same for any number of threads and devices.
#pragma once

#include <cstdint>

namespace official::compute {

// y [batch, m, n] = a [batch, m, k] * b [batch, k, n]. Strides are in floats; y is row-major.
struct OrderedProduct {
  int64_t batch, m, n, k;
  int64_t a_batch_stride, a_row_stride, a_column_stride;
  int64_t b_batch_stride, b_row_stride, b_column_stride;
  int num_threads;

  int64_t scratch_bytes() const;  // at a multiple of 64 bytes
  // Computes y, plus a bias [n] (null: none), and then ReLU if `relu`.
  void Run(const float* a, const float* b, const float* bias, bool relu, float* y, void* scratch) const;
};

}  // namespace official::compute
