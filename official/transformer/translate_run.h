// All of translate_main but for its command line.
#pragma once

#include <istream>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "utils/compute/core/dtype.h"

namespace official::transformer {

struct TranslateConfig {
  std::string model_dir;  // whose newest checkpoint translates
  std::string param_set;  // the network; the overrides come on top
  std::string params_override;
  std::string vocab_file;
  std::optional<std::string> text, file, file_out;
  int batch_size = 32;                              // sentences
  compute::DType dtype = compute::DType::kFloat32;  // of the computation
  std::optional<int> num_gpus = {};                 // 1 or 0, the CPU; unset: a GPU where there is one
  int num_threads = 0;                              // of the CPU; 0: all cores
  bool json = false;                                // --output=json
};

// Translates --text, then --file, to `out` or --file_out; without either, what comes from `in`, each line as soon as it
// is there. With `json` what goes to `out` is an object a line: {"source": "hello", "translation": "hallo"}, and for a
// file that was written {"file_out": "test.de", "lines": 1000}. Errors say which flag or file does not fit.
absl::Status RunTranslate(const TranslateConfig& config, std::istream& in, std::ostream& out);

}  // namespace official::transformer
