#include "utils/run/report.h"

#include <catch2/catch.hpp>
#include <sstream>

namespace official::run {
namespace {

std::string Printed(bool json) {
  std::ostringstream out;
  PrintEvaluation(json, {{"HR", 0.1}, {"accuracy", 0.9892f}, {"global_step", 2400}, {"loss", 0.03478159f}}, out);
  return out.str();
}

TEST_CASE("Results are printed as TensorFlow prints them, floats with the digits that they have") {
  CHECK(Printed(/*json=*/false) ==
        "\nEvaluation results:\n\t{'HR': 0.1, 'accuracy': 0.9892, 'global_step': 2400, 'loss': 0.03478159}\n\n");
}

TEST_CASE("Results as JSON have all digits, so that a program reads the same numbers") {
  CHECK(Printed(/*json=*/true) ==
        "{\"event\": \"evaluation\", \"HR\": 0.1, \"accuracy\": 0.9891999959945679, \"global_step\": 2400, "
        "\"loss\": 0.03478159010410309}\n");
}

}  // namespace
}  // namespace official::run
