// The record of a run in benchmark_run.log.
#pragma once

#include <string>

#include "utils/logs/run_info.h"
#include "utils/misc/gpu_count.h"
#include "utils/run/session.h"

namespace official::run {

// Returns what is recorded of a run on `dataset`, whose devices get `replica_batch` examples each. The parameters are
// those that upstream records of the model, and more; `gpus` are those of the machine, whether the run uses them or
// not.
logs::RunInfo RunRecord(const Config& config, const SessionOptions& options, const std::string& dataset,
                        int replica_batch, const misc::VisibleGpus& gpus = misc::CountVisibleGpus());

}  // namespace official::run
