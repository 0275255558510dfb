// PluginOfTests: the PJRT plugin that tests run on. third_party/pjrt/plugin_of_tests.py finds that of tests in Python.
#pragma once

#include <string>

namespace official::compute {

// Returns the path of the plugin: that of OP_TEST_PJRT_PLUGIN in the environment, "xla_cpu" or "other_xla_cpu" in the
// test's runfiles or the path of any, else xla_cpu.
std::string PluginOfTests();

}  // namespace official::compute
