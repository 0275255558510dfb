// A small network for tests, whose expected results are those of upstream's code at d64bcfe3 under TensorFlow 1.10.1.
#pragma once

#include "official/transformer/model_params.h"
#include "utils/compute/program/variable_store.h"

namespace official::transformer {

inline constexpr char kNetworkScope[] = "model/Transformer/";

ModelParams SmallParams();

// Gives every variable of the network fixed values that depend on its name.
void SetVariables(compute::VariableStore& variables);

// Makes a network with random variables more certain of the next token, so that translations are not all empty.
void Sharpen(compute::VariableStore& variables, float factor);

// Makes the logit of EOS `logit` at each step.
void SetLogitOfEos(compute::VariableStore& variables, float logit);

}  // namespace official::transformer
