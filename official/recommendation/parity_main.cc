// For tests: trains NeuMF on fixed batches in turn, from the checkpoint in --model_dir, evaluates it, and writes what
// TensorFlow's outcome is compared with. official/recommendation/interop/parity_case.py describes the files.

#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "official/recommendation/neumf_model.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/run/parity_run.h"

ABSL_FLAG(int64_t, num_users, 0, "Rows of the users' embeddings.");
ABSL_FLAG(int64_t, num_items, 0, "Rows of the items' embeddings.");
ABSL_FLAG(int64_t, num_factors, 8, "Size of the embeddings of matrix factorization.");
ABSL_FLAG(std::vector<std::string>, layers, {}, "Sizes of the perceptron.");
ABSL_FLAG(std::string, loss, "softmax", "softmax or sigmoid.");
ABSL_FLAG(int64_t, batch_size, 1, "Of training.");

namespace official::recommendation {
namespace {

using compute::Tensor;

train::Model ModelFromFlags() {
  ModelConfig config{.num_users = absl::GetFlag(FLAGS_num_users),
                     .num_items = absl::GetFlag(FLAGS_num_items),
                     .num_factors = absl::GetFlag(FLAGS_num_factors),
                     .layers = {},
                     .loss = absl::GetFlag(FLAGS_loss) == "softmax" ? Loss::kSoftmax : Loss::kSigmoid};
  for (const std::string& size : absl::GetFlag(FLAGS_layers)) {
    OFFICIAL_CHECK(absl::SimpleAtoi(size, &config.layers.emplace_back())) << size;
  }
  return NeuMfModel(config);
}

// The users one after another, each with all candidates.
absl::StatusOr<Tensor> Scores(train::Estimator& estimator, const Tensor& users, const Tensor& candidates) {
  const int64_t count = candidates.shape().dim(1), total = candidates.num_elements();
  const Tensor each_user(users.dtype(), {total}), items({users.dtype(), {total}}, candidates.raw_data());
  for (int64_t i = 0; i < total; ++i) each_user.data<int32_t>()[i] = users.data<int32_t>()[i / count];
  const data::ElementSpec pair{.features = {{"user_id", {users.dtype(), {}}}, {"item_id", {users.dtype(), {}}}},
                               .labels = {}};
  ASSIGN_OR_RETURN(const auto predictions, estimator.Predict(pair, {each_user, items}));
  return predictions[0].second.Clone();
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const auto inputs, run::OpenParityInputs());
  ASSIGN_OR_RETURN(const Tensor users, inputs->Read("users"));
  ASSIGN_OR_RETURN(const Tensor items, inputs->Read("items"));
  ASSIGN_OR_RETURN(const Tensor labels, inputs->Read("labels"));
  ASSIGN_OR_RETURN(const Tensor eval_users, inputs->Read("eval_users"));
  ASSIGN_OR_RETURN(const Tensor candidates, inputs->Read("candidates"));
  ASSIGN_OR_RETURN(const Tensor repeated, inputs->Read("repeated"));
  ASSIGN_OR_RETURN(const auto estimator, run::OpenParityModel(ModelFromFlags()));

  run::ParityOutputs outputs;
  const data::DatasetPtr examples = data::TensorSlices({{"user_id", users}, {"item_id", items}}, {{"", labels}});
  const auto batches = [&](data::Position start) {
    return data::Batches(examples,
                         {.batch_size = absl::GetFlag(FLAGS_batch_size), .start = start, .end_epoch = data::kEndless});
  };
  RETURN_IF_ERROR(run::TrainAndAddLosses(*estimator, batches, outputs));

  ASSIGN_OR_RETURN(outputs["scores"], Scores(*estimator, eval_users, candidates));
  std::vector<data::NamedTensor> features = {{"user_id", eval_users}, {"item_id", candidates}};
  const auto evaluate = [&] {
    const data::DatasetPtr rows = data::TensorSlices(features, {});
    const int64_t half = eval_users.num_elements() / 2;
    return estimator->Evaluate(
        [&](data::Position start) { return data::Batches(rows, {.batch_size = half, .start = start}); }, std::nullopt);
  };
  ASSIGN_OR_RETURN(const train::EvalResults all, evaluate());
  run::AddEvaluation("evaluated", all, outputs);
  features.push_back({"repeated", repeated});
  ASSIGN_OR_RETURN(const train::EvalResults distinct, evaluate());
  run::AddEvaluation("without_repeats", distinct, outputs);
  return run::WriteParityOutputs(outputs);
}

}  // namespace
}  // namespace official::recommendation

int main(int argc, char** argv) { return official::run::ParityMain(argc, argv, official::recommendation::Run); }
