// TensorBoard's event files.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "official/report/run.h"
#include "utils/logs/task_progress.h"

namespace official::report {

// The name of a curve from its tag in the event files: "train_accuracy_1" and "train_accuracy" are the training's
// "accuracy"; the "_1" is TensorFlow's.
std::string CurveName(const std::string& tag, Split split);

// Adds the scalars of an event file to the curves of `run`, and its times; keeps the images of its last step that has
// any and, of an evaluation's, the last samples. Where the file says that a run was resumed at a step, values of later
// steps are forgotten. Samples that are no table are left out with a note. A record that is damaged ends the reading
// with a note; one that is cut off, as in a file that is being written, does so without. `progress` counts the bytes
// that were read.
absl::Status ReadEventFile(const std::string& path, Split split, Run& run, logs::TaskProgress& progress);

}  // namespace official::report
