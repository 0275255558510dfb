// CUDA kernel of CheckNumerics. What it finds is a data error: later kernels leave the variables alone.

#include "utils/compute/ops/check_numerics/check_numerics.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;

// A report holds the element's number, which must be below 2^30, and in two bits what it is: the first such element is
// the smallest report.
enum Found : uint32_t { kNaN, kInfinity, kMinusInfinity };
constexpr int64_t kMaxElements = int64_t{1} << 30;

std::string Message(const TensorType& type, int32_t value) {
  const auto report = static_cast<uint32_t>(value);
  const char* const found = report % 4 == kNaN ? "nan" : report % 4 == kInfinity ? "inf" : "-inf";
  return absl::StrCat("element ", report / 4, " of ", type.ToString(), " is ", found);
}

// y may be x.
template <typename T>
__global__ void __launch_bounds__(kThreads) CheckElements(const T* x, T* y, int64_t count, DataError error) {
  const auto i = ThreadIndex<int64_t>();
  if (i >= count) return;
  const T element = x[i];
  const float v = static_cast<float>(element);
  if (!isfinite(v)) {
    const Found found = isnan(v) ? kNaN : v > 0 ? kInfinity : kMinusInfinity;
    error.Report(static_cast<int32_t>(static_cast<uint32_t>(i) * 4 + found));
  }
  if (x != y) y[i] = element;
}

template <typename T>
absl::StatusOr<Kernel> MakeCheckNumericsOf(const KernelSpec& spec) {
  const TensorType type = spec.input(0);
  const int64_t count = type.shape.num_elements();
  if (count > kMaxElements) {
    return absl::UnimplementedError(
        absl::StrCat(spec.node.name(), " can check up to ", kMaxElements, " elements, not ", type.ToString()));
  }
  CudaDevice& device = CudaDeviceOf(spec);
  const DataError error = device.AddDataError(
      spec.node, [type](int32_t value) { return Message(type, value); }, absl::StatusCode::kOutOfRange);
  return Kernel{[count, error, stream = device.stream()](const KernelArgs& args) {
    if (count == 0) return absl::OkStatus();
    Launch(CheckElements<T>, NumBlocks(count, kThreads), kThreads, 0, stream, args.input<T>(0), args.output<T>(0),
           count, error);
    return LaunchStatus("CheckElements");
  }};
}

const bool registered = RegisterKernel({
    .op = op::CheckNumerics,
    .device_kind = "cuda",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeCheckNumericsOf<T>(spec); }),
    .in_place = {{0, 0}},
});

}  // namespace
}  // namespace official::compute
