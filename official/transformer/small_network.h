// What the tests of the network share: a small one, whose results were seen in upstream's code at d64bcfe3 under
// TensorFlow 1.10.1.
#pragma once

#include "official/transformer/model_params.h"
#include "utils/compute/program/variable_store.h"

namespace official::transformer {

inline constexpr char kNetworkScope[] = "model/Transformer/";

ModelParams SmallParams();

// Every variable of the network gets numbers that its name gives.
void SetVariables(compute::VariableStore& variables);

// Makes the network, whose variables are random, surer of the next token, so that translations are not all empty.
void Sharpen(compute::VariableStore& variables, float factor);

// Makes the logit of EOS `logit` at each step.
void SetLogitOfEos(compute::VariableStore& variables, float logit);

}  // namespace official::transformer
