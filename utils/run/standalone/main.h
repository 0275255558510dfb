// The main function of a training program.
#pragma once

#include "utils/flags/main.h"

namespace official::run {

// Does the same as flags::RunMain, and with --serve or --remote_cluster what these ask for (serve.h, remote_cluster.h)
// in place of `body`. The program answers --env.
int RunMain(int argc, char** argv, const flags::Program& program, const flags::Body& body);

}  // namespace official::run
