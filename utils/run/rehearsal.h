// Rehearsals: what a run would be, without it (--print_schedule, --dry_run,
// --find_lr). Nothing is written to --model_dir.
//
//   if (run::Rehearses(config)) return run::Rehearse(config, model, std::move(input), options, results);
//
// stands where the program would begin its Session, with the same arguments.
#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "utils/run/config.h"
#include "utils/run/input.h"
#include "utils/run/session.h"
#include "utils/train/model.h"

namespace official::run {

inline bool Rehearses(const Config& config) { return config.rehearsal != Rehearsal::kNone; }

// Does what config.rehearsal says and prints it to `results`, as text or an object a line:
//   kPrintSchedule  the learning rate over the steps of the whole run, from its first step
//   kDryRun         a line for each thing that is checked: directories, data, devices, parameters, memory, a training
//                   step and an evaluation step, each on the first batch and on one of the largest shape, and about how
//                   long the run takes, or what has ended it before the end of its schedule. With --eval_only there is
//                   no training step.
//   kFindLr         the losses of a short training with a rising learning rate, and the rate that they suggest
//                   (learning_rate_range.h)
// Errors: those of a run, with the same codes. InvalidArgument for kDryRun and kFindLr in one process of
// several.
absl::Status Rehearse(const Config& config, train::Model model, Input input, const SessionOptions& options,
                      std::ostream& results);

}  // namespace official::run
