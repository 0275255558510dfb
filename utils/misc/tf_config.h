// TF_CONFIG, the environment variable with which cluster operators tell TensorFlow's Estimator of other machines.
#pragma once

#include "absl/status/status.h"

namespace official::misc {

// Returns InvalidArgument, with what was found, if `tf_config`, the value of TF_CONFIG or nullptr, asks for a run of
// several processes, or is no JSON object: a program that ignored it would be as many runs that know nothing of each
// other. A cluster that is missing, empty or consists of one task (not a parameter server) is this program alone.
absl::Status CheckTfConfig(const char* tf_config);

}  // namespace official::misc
