#include "utils/train/server_messages.h"

#include <optional>

namespace official::train {

absl::StatusOr<BuiltModel> BuildServerUpdate(const Model& model, const EstimatorConfig& config,
                                             const data::ElementSpec& spec, int num_servers, int server,
                                             const RowCounts& rows) {
  // The types that the model has for one example of zeros.
  data::ElementSpec types = Batched(spec, 1);
  if (model.share) {
    const BatchShare share = model.share(Mode::kTrain, data::ExampleOfZeros(spec), {0, 1}, 0);
    for (size_t i = 0; i < types.features.size(); ++i) types.features[i].type = share.features[i].type();
    for (size_t i = 0; i < types.labels.size(); ++i) types.labels[i].type = share.labels[i].type();
  }
  return BuildModel(model, Mode::kTrain, config.dtype, types,
                    {.loss_scale = config.loss_scale,
                     .part = StepPart::kUpdate,
                     .server_update = ServerUpdate{.num_servers = num_servers,
                                                   .placement = config.servers.placement,
                                                   .partitioner = config.servers.partitioner,
                                                   .rows = rows,
                                                   .server = server}});
}

}  // namespace official::train
