#include "utils/compute/cuda_backend/compatibility.h"

#include <catch2/catch.hpp>

namespace official::compute {
namespace {

TEST_CASE("Kernels run on later capabilities of a major version, and beyond the last on all") {
  const int all[] = {75, 80, 86, 89, 90, 100, 120}, one[] = {90};
  for (const int capability : {75, 80, 86, 87, 89, 90, 100, 103, 120, 121, 130}) {
    CAPTURE(capability);
    CHECK(RunsOn(all, capability));
    CHECK(RunsOn(one, capability) == (capability >= 90));
  }
  for (const int capability : {50, 61, 70, 72, 110}) {
    CAPTURE(capability);
    CHECK_FALSE(RunsOn(all, capability));
  }
  CHECK_FALSE(RunsOn({}, 90));
}

TEST_CASE("GPUs that cannot be used are named with the reason") {
  const int architectures[] = {86, 90};
  const FoundGpu found[] = {{"Tesla T4", 75}, {"NVIDIA H200", 90}, {"NVIDIA A100", 80}, {"NVIDIA L4", 89}};
  const CudaGpus gpus = ChooseGpus(found, architectures);
  CHECK(gpus.usable == std::vector<int>{1, 3});
  REQUIRE(gpus.unusable.size() == 2);
  CHECK(gpus.unusable[0] ==
        "GPU 0, Tesla T4, cannot be used: it has compute capability 7.5, and this program was built for 8.6, 9.0");
  CHECK_THAT(gpus.unusable[1], Catch::StartsWith("GPU 2, NVIDIA A100, "));
  CHECK(gpus.why_none.empty());

  const CudaGpus none = ChooseGpus(absl::MakeSpan(found, 1), architectures);
  CHECK(none.usable.empty());
  CHECK(none.why_none == gpus.unusable[0]);
  CHECK(ChooseGpus({}, architectures).why_none == "the NVIDIA driver lists no GPU");
}

TEST_CASE("Libraries for another major version of CUDA are refused") {
  CHECK(CheckCudaOf("cuDNN 9.19.0", 13010, 13000).ok());
  const absl::Status status = CheckCudaOf("cuDNN 9.19.0", 12090, 13000);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() ==
        "cuDNN 9.19.0 is for CUDA 12, this program for CUDA 13; name the folder of the one for CUDA "
        "13 in LD_LIBRARY_PATH");
  CHECK(CudaVersionText(13020) == "13.2");
}

}  // namespace
}  // namespace official::compute
