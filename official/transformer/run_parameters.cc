#include "official/transformer/run_parameters.h"

#include <variant>

namespace official::transformer {
namespace {

int64_t DefaultBatchSizeTpu(const std::string& param_set) {
  if (param_set == "tiny") return 1024;
  return param_set == "big" ? 16384 : 32768;
}

// How often upstream's input pipeline repeats the data for one round of training; unset: forever.
logs::RunParameter RepeatDataset(const TransformerConfig& config) {
  if (!config.train_steps) return int64_t{config.base.epochs_between_evals};
  // It takes a step for a pair.
  const int64_t steps = config.steps_between_evals;
  if (steps <= kTrainPairs) return std::nullopt;
  return (steps + kTrainPairs - 1) / kTrainPairs;
}

}  // namespace

std::vector<std::pair<std::string, logs::RunParameter>> RunParametersOf(const TransformerConfig& config) {
  std::vector<std::pair<std::string, logs::RunParameter>> parameters = {
      {"allow_ffn_pad", true},
      {"data_dir", config.base.data_dir},
      {"default_batch_size_tpu", DefaultBatchSizeTpu(config.param_set)},
      {"learning_rate_decay_rate", 1.0},
      {"model_dir", config.train.model_dir},
      {"num_parallel_calls", int64_t{config.performance.num_parallel_calls}},
      {"param_set", config.param_set},
      {"repeat_dataset", RepeatDataset(config)},
      {"static_batch", config.static_batch},
      {"tpu", std::nullopt},
      {"use_synthetic_data", config.performance.use_synthetic_data},
      {"use_tpu", false}};
  for (const auto& [name, value] : NamedParams(config.params)) {
    std::visit([&, &name = name](auto number) { parameters.emplace_back(name, number); }, value);
  }
  return parameters;
}

}  // namespace official::transformer
