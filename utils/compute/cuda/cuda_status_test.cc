#include "utils/compute/cuda/cuda_status.h"

#include <catch2/catch.hpp>
#include <string>

#include "utils/compute/cuda/fastest.h"

namespace official::compute {
namespace {

TEST_CASE("Lack of memory is ResourceExhausted, whichever library lacks it; other errors are Internal") {
  for (const absl::Status& status :
       {CudaStatus(cudaErrorMemoryAllocation, "call"), CudaStatus(CUBLAS_STATUS_ALLOC_FAILED, "call"),
        CudaStatus(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "call"),
        CudaStatus(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "call")}) {
    CHECK(absl::IsResourceExhausted(status));
    CHECK_THAT(std::string(status.message()), Catch::StartsWith("call: "));
  }
  for (const absl::Status& status :
       {CudaStatus(cudaErrorInvalidValue, "call"), CudaStatus(CUBLAS_STATUS_INVALID_VALUE, "call"),
        CudaStatus(CUDNN_STATUS_BAD_PARAM, "call")}) {
    CHECK(absl::IsInternal(status));
  }
  CHECK(CudaStatus(CUBLAS_STATUS_SUCCESS, "call").ok());
}

TEST_CASE("It stays so where no algorithm has enough") {
  const auto fastest = FastestOnStream(/*stream=*/nullptr, /*count=*/2, [](int i) {
    return CudaStatus(CUBLAS_STATUS_ALLOC_FAILED, i == 0 ? "a" : "b");
  });
  CHECK(absl::IsResourceExhausted(fastest.status()));
  CHECK_THAT(std::string(fastest.status().message()), Catch::Contains("none of 2 algorithms ran; the first says: a: "));
}

}  // namespace
}  // namespace official::compute
