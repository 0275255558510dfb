#include "utils/compute/cuda_backend/open_library.h"

#include <catch2/catch.hpp>

namespace official::compute {
namespace {

using Catch::Matchers::Contains;

std::string PathOf(const std::string& name) { return "utils/compute/cuda_backend/lib" + name + "_backend.so"; }

TEST_CASE("A backend of another build is refused before it is used") {
  for (const char* const name : {"old", "other"}) {
    const absl::Status status = OpenCudaLibrary(PathOf(name)).status();
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(status.message() ==
          PathOf(name) + " is of another build than this program; build both, or copy both, together");
  }
}

TEST_CASE("What is no backend, or is not there, is named") {
  const absl::Status no_backend = OpenCudaLibrary(PathOf("no")).status();
  CHECK(absl::IsNotFound(no_backend));
  CHECK_THAT(std::string(no_backend.message()), Contains("libno_backend.so is not a CUDA backend"));
  const absl::Status missing = OpenCudaLibrary(PathOf("missing")).status();
  CHECK(absl::IsNotFound(missing));
  CHECK_THAT(std::string(missing.message()), Contains("libmissing_backend.so") && Contains("LD_LIBRARY_PATH"));
}

}  // namespace
}  // namespace official::compute
