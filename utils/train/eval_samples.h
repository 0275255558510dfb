// EvalSamples: some examples of an evaluation, with what the model made of them, for people to look at.
#pragma once

#include <string>
#include <vector>

#include "utils/compute/core/tensor.h"

namespace official::train {

struct EvalSamples {
  std::vector<std::string> columns;            // names of the texts
  std::vector<std::vector<std::string>> rows;  // of each example: UTF-8 texts, one for each column
  std::vector<compute::Tensor> images = {};    // of each example, or none: float32 [height, width, channels]
};

// Adds the examples of `more`, of the same model, to `samples`.
void Append(EvalSamples more, EvalSamples& samples);

// Cuts texts that are longer than 1000 bytes after a whole character, and ends them with an ellipsis.
void CutLongTexts(EvalSamples& samples);

// Returns the images of all samples as one tensor [n, height, width, channels]; there must be some, of one shape.
compute::Tensor ImagesOf(const EvalSamples& samples);

}  // namespace official::train
