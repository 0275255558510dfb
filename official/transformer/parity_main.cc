// For tests: evaluates a Transformer on one fixed batch, from the checkpoint in --model_dir, trains on that batch, and
// writes what TensorFlow's outcome is compared with. official/transformer/interop/parity_case.py describes the files.

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "official/transformer/packing.h"
#include "official/transformer/transformer_model.h"
#include "utils/compute/core/status.h"
#include "utils/compute/program/program.h"
#include "utils/data/batch.h"
#include "utils/run/parity_run.h"

ABSL_FLAG(std::string, param_set, "tiny", "tiny, base or big; dropout is off.");

namespace official::transformer {
namespace {

using compute::Tensor;
using compute::Value;

absl::StatusOr<data::Batch> ReadBatch() {
  ASSIGN_OR_RETURN(const auto bundle, run::OpenParityInputs());
  ASSIGN_OR_RETURN(const Tensor inputs, bundle->Read("inputs"));
  ASSIGN_OR_RETURN(const Tensor input_lengths, bundle->Read("input_lengths"));
  ASSIGN_OR_RETURN(const Tensor targets, bundle->Read("targets"));
  ASSIGN_OR_RETURN(const Tensor target_lengths, bundle->Read("target_lengths"));
  data::Batch batch;
  batch.num_examples = inputs.shape().dim(0);
  batch.features = {inputs, input_lengths};
  batch.labels = {targets, target_lengths};
  return batch;
}

// Of an evaluation of the batch, by the estimator's variables: float32 [rows, vocab_size], the rows being its padded
// targets and more behind them.
absl::StatusOr<Tensor> LogitsOf(const data::Batch& batch, const ModelParams& params, const train::Estimator& trained) {
  const train::BatchShare share = PackedShare(train::Mode::kEval, batch, {0, batch.num_examples});
  compute::Graph graph;
  const auto constants = [&](const data::Tensors& tensors) {
    return std::vector<Value>{graph.Constant(tensors[0]), graph.Constant(tensors[1])};
  };
  const Value logits = Logits({.graph = graph,
                               .mode = train::Mode::kEval,
                               .dtype = compute::DType::kFloat32,
                               .features = constants(share.features),
                               .labels = constants(share.labels),
                               .random_state = {}},
                              params);
  ASSIGN_OR_RETURN(const auto device, compute::MakeDevice("cpu"));
  compute::VariableStore variables(*device);
  RETURN_IF_ERROR(variables.Create(graph, /*seed=*/1));
  for (const compute::VariableSpec& spec : variables.specs()) {
    ASSIGN_OR_RETURN(const Tensor value, trained.Variable(spec.name));
    RETURN_IF_ERROR(variables.Write(spec.name, value));
  }
  ASSIGN_OR_RETURN(const auto program, compute::Program::Compile(graph, {{}, {logits}, {}}, *device, variables));
  RETURN_IF_ERROR(program->Run({}));
  ASSIGN_OR_RETURN(const Tensor result, program->Fetch(0));
  return result.Clone();
}

absl::Status Run() {
  ASSIGN_OR_RETURN(ModelParams params, ParamsOf(absl::GetFlag(FLAGS_param_set), /*multi_gpu=*/false));
  params.layer_postprocess_dropout = params.attention_dropout = params.relu_dropout = 0;
  ASSIGN_OR_RETURN(const data::Batch batch, ReadBatch());
  const data::DatasetPtr examples =
      data::TensorSlices({{"inputs", batch.features[0]}, {"input_lengths", batch.features[1]}},
                         {{"targets", batch.labels[0]}, {"target_lengths", batch.labels[1]}});
  const auto epochs_until = [&](int64_t end) {
    return [&, end](data::Position start) {
      return data::Batches(examples, {.batch_size = batch.num_examples, .start = start, .end_epoch = end});
    };
  };

  ASSIGN_OR_RETURN(const auto estimator, run::OpenParityModel(TransformerModel(params)));
  ASSIGN_OR_RETURN(const train::EvalResults evaluated, estimator->Evaluate(epochs_until(1), std::nullopt));
  run::ParityOutputs outputs;
  run::AddEvaluation("evaluated", evaluated, outputs);
  ASSIGN_OR_RETURN(outputs["logits"], LogitsOf(batch, params, *estimator));
  RETURN_IF_ERROR(run::TrainAndAddLosses(*estimator, epochs_until(data::kEndless), outputs));
  return run::WriteParityOutputs(outputs);
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) { return official::run::ParityMain(argc, argv, official::transformer::Run); }
