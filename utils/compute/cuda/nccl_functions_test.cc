#include "utils/compute/cuda/nccl_functions.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

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

TEST_CASE("NCCL is told to register no buffers of recorded sums, unless the environment says otherwise") {
  const auto value_for_nccl = [] {
    REQUIRE(LoadNcclFunctions("utils/compute/cuda/libfake_nccl.so").ok());
    const char* const value = std::getenv("NCCL_GRAPH_REGISTER");
    return std::string(value == nullptr ? "" : value);
  };
  unsetenv("NCCL_GRAPH_REGISTER");
  CHECK(value_for_nccl() == "0");
  setenv("NCCL_GRAPH_REGISTER", "1", 1);
  CHECK(value_for_nccl() == "1");
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
