// Signature: a function of a graph that clients can call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "utils/compute/core/dtype.h"

namespace official::exporting {

struct Signature {
  struct Tensor {
    std::string name;  // name of a node, or of one of its outputs ("node:1")
    compute::DType dtype;
    std::vector<int64_t> dims;  // -1: any size
  };
  std::string key;                        // "classify", "predict", ...
  std::map<std::string, Tensor> inputs;   // by the names that clients use
  std::map<std::string, Tensor> outputs;  // likewise
};

}  // namespace official::exporting
