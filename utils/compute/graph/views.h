// Views: values that are the bytes of another one under another type (OpDef::is_view).
#pragma once

#include "utils/compute/graph/graph.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {

// Returns the value whose bytes `v` has: the chain of views ends at what owns the bytes.
inline Value Base(Value v) {
  while (v.node()->op().is_view && v.index() == 0) v = v.node()->input(0);
  return v;
}

}  // namespace official::compute
