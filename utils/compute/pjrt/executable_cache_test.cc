#include "utils/compute/pjrt/executable_cache.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/pjrt/client.h"

namespace official::compute {
namespace {

using Compiled = absl::StatusOr<std::unique_ptr<PjrtExecutable>>;

constexpr char kModule[] = "module @m";

TEST_CASE("Who waits for a compilation that throws gets the same error as who has compiled") {
  std::function<void()> fail;
  absl::Status expected;
  SECTION("For want of memory") {
    fail = [] { throw std::bad_alloc(); };
    expected = absl::ResourceExhaustedError("there is no memory to compile a program");
  }
  SECTION("For another reason") {
    fail = [] { throw std::length_error("too long"); };
    expected = absl::InternalError("compiling a program: too long");
  }
  ExecutableCache cache;
  int num_compilations = 0;
  absl::Status waited;
  std::thread waiting;
  const auto compile = [&]() -> Compiled {
    ++num_compilations;
    waiting = std::thread([&] {
      waited = cache
                   .Get(kModule,
                        [&]() -> Compiled {
                          ++num_compilations;
                          return absl::DataLossError("compiled twice");
                        })
                   .status();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until it waits, if the machine is not busy
    fail();
    return absl::DataLossError("nothing was thrown");
  };
  CHECK(cache.Get(kModule, compile).status() == expected);
  waiting.join();
  CHECK(waited == expected);
  CHECK(num_compilations == 1);
}

TEST_CASE("An error is returned until it is forgotten") {
  ExecutableCache cache;
  const auto get = [&](const absl::Status& error) {
    return cache.Get(kModule, [&]() -> Compiled { return error; }).status();
  };
  CHECK(get(absl::InternalError("first")) == absl::InternalError("first"));
  CHECK(get(absl::InternalError("second")) == absl::InternalError("first"));
  cache.ForgetErrors();
  CHECK(get(absl::InternalError("second")) == absl::InternalError("second"));
}

}  // namespace
}  // namespace official::compute
