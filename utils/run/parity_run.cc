#include "utils/run/parity_run.h"

#include <iostream>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/strategy.h"
#include "utils/logs/loss_recorder.h"

ABSL_FLAG(std::string, inputs, "", "Bundle with the batches.");
ABSL_FLAG(std::string, model_dir, "", "Holds the checkpoint to start from; the last one and the outputs go there.");
ABSL_FLAG(int64_t, steps, 0, "Global step to train to; that of the checkpoint or less: there is no training.");

namespace official::run {

using compute::Tensor;

absl::StatusOr<std::unique_ptr<train::BundleReader>> OpenParityInputs() {
  return train::BundleReader::Open(absl::GetFlag(FLAGS_inputs));
}

absl::StatusOr<std::unique_ptr<train::Estimator>> OpenParityModel(train::Model model) {
  ASSIGN_OR_RETURN(auto strategy, distribute::Strategy::Create({}));
  train::EstimatorConfig config;
  config.model_dir = absl::GetFlag(FLAGS_model_dir);
  config.resume = train::Resume::kMust;
  config.winograd = false;  // the results do not depend on times
  return train::Estimator::Create(std::move(model), std::move(config), std::move(strategy));
}

absl::Status TrainAndAddLosses(train::Estimator& estimator, const train::InputFn& input_fn, ParityOutputs& outputs) {
  std::vector<float> losses;
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<logs::LossRecorder<float>>(losses));
  if (const int64_t steps = absl::GetFlag(FLAGS_steps); steps > estimator.global_step()) {
    RETURN_IF_ERROR(estimator.Train(input_fn, steps, hooks));
  }
  outputs["losses"] = Tensor::Of<float>({static_cast<int64_t>(losses.size())}, absl::MakeConstSpan(losses));
  return absl::OkStatus();
}

void AddEvaluation(const std::string& group, const train::EvalResults& results, ParityOutputs& outputs) {
  for (const auto& [name, value] : results) {
    outputs[absl::StrCat(group, "/", name)] = Tensor::Scalar(static_cast<float>(value));
  }
}

absl::Status WriteParityOutputs(const ParityOutputs& outputs) {
  ASSIGN_OR_RETURN(const auto bundle,
                   train::BundleWriter::Create(absl::StrCat(absl::GetFlag(FLAGS_model_dir), "/outputs")));
  for (const auto& [name, tensor] : outputs) RETURN_IF_ERROR(bundle->Add(name, tensor));
  return bundle->Finish();
}

int ParityMain(int argc, char** argv, absl::Status (*run)()) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = run();
  if (!status.ok()) std::cerr << "parity_main: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace official::run
