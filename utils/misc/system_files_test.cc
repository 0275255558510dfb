#include "utils/misc/system_files.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

namespace official::misc {
namespace {

TEST_CASE("A field is the rest of the first line with its name, without blanks") {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/fields";
  std::ofstream(path) << "no field\nmodel name\t: A: b \nmodel name\t: C\nempty:\nNAME=\"d: e\"\nlast: f";
  CHECK(SystemField(path, "model name") == "A: b");
  CHECK(SystemField(path, "NAME", '=') == "\"d: e\"");
  CHECK(SystemField(path, "last") == "f");
  CHECK(SystemField(path, "empty").empty());
  CHECK(SystemField(path, "model").empty());
  CHECK(SystemField("/nowhere", "model name").empty());
}

}  // namespace
}  // namespace official::misc
