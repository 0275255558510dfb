#include "utils/compute/cuda/nccl_functions.h"

#include <catch2/catch.hpp>

namespace official::compute {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("All functions are found, in their order") {
  const auto addresses = LoadNcclFunctions("utils/compute/cuda/libfake_nccl.so");
  INFO(addresses.status());
  REQUIRE(addresses.ok());
  REQUIRE(addresses->size() == 11);
  for (int i = 0; i < 11; ++i) CHECK(reinterpret_cast<int (*)()>((*addresses)[i])() == i);
}

TEST_CASE("A library that is missing is named, with what to do") {
  const absl::Status status = LoadNcclFunctions("libno_nccl.so.2").status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(std::string(status.message()), Contains("NCCL") && Contains("libno_nccl.so.2") &&
                                                Contains("LD_LIBRARY_PATH") && Contains("--all_reduce_alg"));
}

TEST_CASE("A library without one of the functions is refused") {
  const absl::Status status = LoadNcclFunctions("utils/compute/cuda/libold_nccl.so").status();
  CHECK(absl::IsNotFound(status));
  CHECK(status.message() == "utils/compute/cuda/libold_nccl.so is too old or is not NCCL: it has no ncclAllReduce");
}

}  // namespace
}  // namespace official::compute
