// What the tests of the network share: a small one, whose results were seen in upstream's code at d64bcfe3 under
// TensorFlow 1.10.1.
#pragma once

#include "official/transformer/model_params.h"
#include "utils/compute/runtime/variable_store.h"

namespace official::transformer {

inline constexpr char kNetworkScope[] = "model/Transformer/";

ModelParams SmallParams();

// Every variable of the network gets numbers that its name gives.
void SetVariables(compute::VariableStore& variables);

}  // namespace official::transformer
