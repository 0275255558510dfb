#include "utils/run/session.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "utils/run/small_run.h"

namespace official::run {
namespace {

TEST_CASE("A program without a serving graph refuses the flags that export one, before it trains") {
  Config config = SmallRun(/*batch_size=*/4);
  config.program = "own_main";
  std::string flag = "--save_meta_graph";
  SECTION("a graph with each checkpoint") { config.base.save_meta_graph = true; }
  SECTION("an export at the end") {
    config.base.export_dir = NewDirectory("export");
    flag = "--export_dir=" + *config.base.export_dir;
  }
  std::ostringstream results;
  const auto session = Session::Open(config, results).value();
  CHECK(session->Begin({}, {}, {.name = "own"}).status() ==
        absl::InvalidArgumentError(flag + ": own_main has no graph of predictions to export; leave it out"));
}

}  // namespace
}  // namespace official::run
