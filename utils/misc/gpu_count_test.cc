#include "utils/misc/gpu_count.h"

#include <stdlib.h>

#include <catch2/catch.hpp>

namespace official::misc {
namespace {

using Catch::Matchers::Contains;

const char kFakeDriver[] = "utils/misc/libfake_cuda_driver.so";

TEST_CASE("The driver's count is passed on, with the name of the first GPU") {
  setenv("FAKE_GPUS", "3", 1);
  const VisibleGpus gpus = CountGpusOfDriver(kFakeDriver);
  CHECK(gpus.count == 3);
  CHECK(gpus.why_none.empty());
  CHECK(gpus.model == "Fake 70");
}

TEST_CASE("Where there is no GPU, the reason is reported") {
  setenv("FAKE_GPUS", "0", 1);
  CHECK(CountGpusOfDriver(kFakeDriver).why_none == "the NVIDIA driver lists no GPU");
  CHECK(CountGpusOfDriver(kFakeDriver).model.empty());

  setenv("FAKE_GPUS", "-100", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  const VisibleGpus none = CountGpusOfDriver(kFakeDriver);
  CHECK(none.count == 0);
  CHECK(none.why_none == "cuInit: no CUDA-capable device is detected (error 100)");

  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  CHECK_THAT(CountGpusOfDriver(kFakeDriver).why_none, Contains("CUDA_VISIBLE_DEVICES is '7'"));

  setenv("FAKE_GPUS", "-804", 1);
  CHECK_THAT(CountGpusOfDriver(kFakeDriver).why_none, Contains("error 804"));
}

TEST_CASE("A driver that is absent or is not a driver counts as no GPU") {
  CHECK_THAT(CountGpusOfDriver("libno_such_driver.so.1").why_none, Contains("libno_such_driver.so.1"));
  CHECK_THAT(CountGpusOfDriver("libc.so.6").why_none, Contains("no cuInit"));
}

}  // namespace
}  // namespace official::misc
