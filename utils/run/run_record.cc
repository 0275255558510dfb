#include "utils/run/run_record.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/misc/version.h"

namespace official::run {
namespace {

// As Python prints the type, which it calls float16.
std::string PythonText(compute::DType dtype) {
  const absl::string_view name = dtype == compute::DType::kFloat16 ? "float16" : compute::DTypeName(dtype);
  return absl::StrCat("<dtype: '", name, "'>");
}

}  // namespace

logs::RunInfo RunRecord(const Config& config, const SessionOptions& options, const std::string& dataset,
                        int replica_batch, const misc::VisibleGpus& gpus) {
  logs::RunInfo info{.model_name = options.name,
                     .dataset_name = options.official_dataset.empty() ? dataset : options.official_dataset,
                     .test_id = config.benchmark.benchmark_test_id,
                     .run_parameters = {{"batch_size", int64_t{options.records_replica_batch ? replica_batch
                                                                                             : config.base.batch_size}},
                                        {"dtype", PythonText(config.train.dtype)},
                                        {"synthetic_data", config.performance.use_synthetic_data},
                                        {"train_epochs", int64_t{config.base.train_epochs}}},
                     .gpu_count = gpus.count,
                     .gpu_model = gpus.model,
                     .version = misc::kVersion,
                     .version_git_hash = config.commit};
  info.run_parameters.insert(info.run_parameters.end(), options.run_parameters.begin(), options.run_parameters.end());
  return info;
}

}  // namespace official::run
