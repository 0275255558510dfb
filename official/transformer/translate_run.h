// All of translate_main except its command line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "official/transformer/translator.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/kernel/device.h"
#include "utils/flags/performance.h"

namespace official::transformer {

struct TranslateConfig {
  std::string model_dir;     // its newest checkpoint translates
  bool only_latest = false;  // true: if that is damaged, it is an error, and no older one is taken
  std::string param_set;     // the network, which params_override changes
  std::string params_override;
  std::string vocab_file;
  std::optional<std::string> text, file, file_out;
  int batch_size = 32;                              // sentences
  compute::DType dtype = compute::DType::kFloat32;  // type of the computation
  std::optional<int> num_gpus = {};                 // 1, or 0 for the CPU; unset: a GPU if there is one
  flags::PerformanceConfig performance = {};        // CPU threads, PJRT plugin
  bool json = false;                                // --output=json
  std::string program = "translate_main";
};

// A translator, the device that computes it, and the step of its checkpoint.
struct OpenedTranslator {
  std::unique_ptr<compute::Device> device;
  std::unique_ptr<Translator> translator;
  int64_t global_step = 0;
};

// Opens the newest checkpoint. Errors name the flag or file that is wrong.
absl::StatusOr<OpenedTranslator> OpenTranslator(const TranslateConfig& config);

// Translates --text, then --file, to `out` or --file_out; without either, the lines of the descriptor `in`, each as
// soon as it arrives. With `json` the output to `out` is an object a line: {"source": "hello", "translation": "hallo"},
// and for a written file {"file_out": "test.de", "lines": 1000}. Errors name the flag or file that is wrong. A line of
// `in` that is bad (run::ArrivingLines, Translator::CountTokens) is logged with its number; its translation is empty,
// with `json` {"source": null, "error": "byte 2 is not UTF-8"}, and at the end comes DataLoss.
absl::Status RunTranslate(const TranslateConfig& config, int in, std::ostream& out);

}  // namespace official::transformer
