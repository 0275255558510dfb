// One record of the Transformer's data: a sentence and its translation in a tf.Example.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::transformer {

// Reads the ids of the features `inputs` and `targets`. DataLoss, naming the feature, if one is missing, of the wrong
// kind or has no ids, or an id is not in [0, 2^31).
absl::Status ParseTranslation(absl::string_view serialized, std::vector<int64_t>* inputs,
                              std::vector<int64_t>* targets);

}  // namespace official::transformer
