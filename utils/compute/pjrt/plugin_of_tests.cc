#include "utils/compute/pjrt/plugin_of_tests.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace official::compute {

std::string PluginOfTests() {
  const char* const runfiles = std::getenv("TEST_SRCDIR");
  const char* const name = std::getenv("OP_TEST_PJRT_PLUGIN");
  if (name != nullptr && absl::string_view(name).find('/') != absl::string_view::npos) return name;
  return absl::StrCat(runfiles == nullptr ? ".." : runfiles, "/pjrt/", name == nullptr ? "xla_cpu" : name, ".so");
}

}  // namespace official::compute
