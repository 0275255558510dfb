// Most files that build or read graphs include these.
#include "third_party/precompiled/std_and_absl.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/op_def.h"
