#include "utils/train/evaluations/evaluation_text.h"

#include <catch2/catch.hpp>

namespace official::train {
namespace {

// The numbers are those that NumPy prints: str(numpy.float32(0.026524536)), str(numpy.float32(1)).
TEST_CASE("SavingDict prints every digit of the step and of the metrics") {
  CHECK(SavingDict(1234567, {{"accuracy", 1.0}, {"global_step", 1234567.0}, {"loss", 0.026524536311626434}}) ==
        "Saving dict for global step 1234567: accuracy = 1.0, global_step = 1234567, loss = 0.026524536");
  CHECK(SavingDict(1000000, {{"global_step", 1e6}}) == "Saving dict for global step 1000000: global_step = 1000000");
}

}  // namespace
}  // namespace official::train
