#include "utils/run/server_flags.h"

#include "utils/compute/core/dtype.h"

namespace official::run {

absl::Status CheckServerFlags(
    const Config& config, absl::FunctionRef<absl::Status(absl::string_view flag, absl::string_view advice)> refused) {
  if (config.train.dtype != compute::DType::kFloat32) {
    return refused(config.train.dtype == compute::DType::kBFloat16 ? "--dtype=bf16" : "--dtype=fp16",
                   "use --dtype=fp32");
  }
  if (config.train.ema_decay) return refused("--ema_decay", "leave it out");
  if (config.train.clip_norm) {
    return refused("--clip_norm", "whose norm is of gradients that no task has together; use --clip_value");
  }
  if (config.train.loss_scale.dynamic) return refused("--loss_scale=dynamic", "use a fixed --loss_scale");
  return absl::OkStatus();
}

}  // namespace official::run
