#include "utils/train/estimator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/train/batch_memory.h"
#include "utils/train/evaluation.h"
#include "utils/train/parameter_server.h"

namespace official::train {

using compute::Tensor;

absl::StatusOr<std::unique_ptr<Estimator>> Estimator::Create(Model model, EstimatorConfig config,
                                                             std::unique_ptr<distribute::Strategy> strategy) {
  ASSIGN_OR_RETURN(auto opened, CheckpointedModel::Open(std::move(model), std::move(config), std::move(strategy)));
  return std::unique_ptr<Estimator>(new Estimator(std::move(opened)));
}

absl::Status Estimator::CheckBatchFits(const TrainingBatches& batches, int64_t free_bytes) {
  return train::CheckBatchFits(*model_, batches, free_bytes);
}

absl::Status Estimator::Train(const InputFn& input_fn, std::optional<int64_t> max_steps,
                              absl::Span<const std::unique_ptr<logs::Hook>> hooks, TrainingEnds training_ends) {
  RETURN_IF_ERROR(model_->averages().Use(false));
  return TrainLoop(*model_, input_fn, max_steps, hooks, training_ends);
}

absl::StatusOr<EvalResults> Estimator::Evaluate(const InputFn& input_fn, std::optional<int64_t> max_steps,
                                                EvalLoss eval_loss) {
  RETURN_IF_ERROR(model_->averages().Use(true));
  return EvaluationLoop(*model_, input_fn, max_steps, eval_loss);
}

absl::Status Estimator::AddEvalSamples(EvalSamples samples) {
  if (!model_->dir().writes_evaluations()) return absl::OkStatus();
  RETURN_IF_ERROR(model_->dir().AddEvalSamples(global_step(), std::move(samples)));
  ASSIGN_OR_RETURN(EventWriter* const events, model_->dir().EvalEvents());
  return events->Flush();
}

absl::Status Estimator::LoadVariables(const compute::Graph& graph) {
  RETURN_IF_ERROR(model_->averages().Use(true));
  return model_->LoadVariables(graph);
}

absl::Status Estimator::Serve(const data::ElementSpec& spec) {
  distribute::ParameterServers& servers = *model_->strategy().servers();
  absl::StatusOr<std::unique_ptr<ParameterServer>> server =
      ParameterServer::Create(model_->model(), model_->config(), spec, servers.num_servers(), *servers.server(),
                              servers.num_workers(), model_->strategy().device(0));
  if (!server.ok()) model_->strategy().Fail(server.status().message());
  RETURN_IF_ERROR(server.status());
  RunState beginning = model_->state();
  if (servers.num_workers() > 1 && beginning.worker_positions.empty()) {
    beginning.worker_positions.assign(servers.num_workers(), beginning.position);
  }
  if (servers.num_workers() > 1 && beginning.worker_positions.size() != static_cast<size_t>(servers.num_workers())) {
    return absl::DataLossError("the chief has sent the positions of another number of workers");
  }
  (*server)->SetBeginning(std::move(beginning), model_->config().training_data);
  const absl::Status served =
      servers.Serve(**server, [&] { return model_->config().interruption() == Interruption::kStop; });
  if (const int64_t dropped = (*server)->num_dropped(); dropped > 0) {
    LOG(INFO) << "dropped " << dropped << " gradients that were of older steps than others";
  }
  return served;
}

absl::Status Estimator::LeaveServers() {
  distribute::ParameterServers* const servers = model_->strategy().servers();
  return servers == nullptr || servers->server() ? absl::OkStatus() : servers->Leave();
}

absl::Status Estimator::KeepEvaluatedStep(std::optional<double> metric) {
  RunState& state = model_->state();
  RETURN_IF_ERROR(model_->dir().KeepEvaluatedStep({state.global_step, metric}));
  state.evaluated_step = state.global_step;
  state.evaluated_metric = metric;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<std::string, Tensor>>> Estimator::Predict(const data::ElementSpec& spec,
                                                                               const data::Tensors& features) {
  RETURN_IF_ERROR(model_->averages().Use(true));
  data::Batch batch;
  batch.features = features;
  batch.num_examples = features[0].shape().dim(0);
  ASSIGN_OR_RETURN(ReplicatedProgram* const program, model_->ProgramFor(Mode::kPredict, spec, batch));
  const ReplicatedProgram::Replica& replica = program->replicas[0];
  compute::Program& first = *replica.program;
  RETURN_IF_ERROR(first.Run(std::vector<Tensor>(replica.share.features.begin(), replica.share.features.end())));
  std::vector<std::pair<std::string, Tensor>> results;
  for (size_t i = 0; i < program->model().fetch_names.size(); ++i) {
    ASSIGN_OR_RETURN(const Tensor value, first.Fetch(static_cast<int>(i)));
    if (compute::FindNonFinite(value)) {
      return ExplainNonFinite(absl::StrCat("the prediction (", program->model().fetch_names[i], ")"), *model_,
                              *program);
    }
    results.emplace_back(program->model().fetch_names[i], value.Clone());
  }
  return results;
}

absl::StatusOr<BuiltModel> Estimator::BuildForExport(const data::ElementSpec& spec) {
  ASSIGN_OR_RETURN(BuiltModel model, train::BuildForExport(model_->model(), spec));
  RETURN_IF_ERROR(LoadVariables(*model.graph));
  return model;
}

}  // namespace official::train
