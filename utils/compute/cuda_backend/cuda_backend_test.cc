#include "utils/compute/cuda_backend/cuda_backend.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/elementwise.h"

namespace official::compute {
namespace {

int NumCudaKernels() {
  const std::vector<const KernelDef*> all = KernelRegistry::Global().All();
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [](const KernelDef* def) { return def->device_kind == "cuda"; }));
}

// The library is built where the toolkit is; then it loads without a driver, too, and fills this program's registry.
TEST_CASE("Kernels register without a driver") {
  CHECK(NumCudaKernels() == 0);
  const absl::Status status = LoadCudaKernels();
  INFO(status);
  if (status.ok()) {
    CHECK(KernelRegistry::Global().Find(op::Add, "cuda", DType::kFloat32) != nullptr);
    const int kernels = NumCudaKernels();
    REQUIRE(LoadCudaKernels().ok());
    CHECK(NumCudaKernels() == kernels);
  } else {
    CHECK(absl::IsNotFound(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains("libofficial_cuda.so"));
    CHECK(NumCudaKernels() == 0);
  }
}

TEST_CASE("Devices are there after loading, or the reason why not is reported") {
  const absl::Status status = LoadCudaBackend();
  INFO(status);
  const absl::StatusOr<std::unique_ptr<Device>> device = MakeDevice("cuda");
  CHECK(device.ok() == status.ok());
  CHECK(LoadCudaBackend() == status);
  if (status.ok()) {
    CHECK((*device)->name() == "gpu:0");
    CHECK((*device)->Synchronize().ok());
  } else {
    CHECK((absl::IsFailedPrecondition(status) || absl::IsNotFound(status)));
    CHECK_THAT(std::string(status.message()), Catch::Contains("no GPU: ") || Catch::Contains("libofficial_cuda.so"));
  }
}

}  // namespace
}  // namespace official::compute
