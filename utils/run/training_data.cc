#include "utils/run/training_data.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/logs/log.h"

namespace official::run {
namespace {

constexpr char kTrainData[] = "train_data";  // the fact

std::string TrainingExamples(const Input& input) {
  return absl::StrCat("training on ", input.num_train_examples, " examples, ",
                      input.fingerprint.empty() ? "made up" : input.fingerprint);
}

}  // namespace

std::string DescribeTrainingData(const Input& input) {
  return absl::StrCat(input.dataset, " (", TrainingExamples(input), ")");
}

std::string DescribeData(const Input& input, bool evaluates) {
  const bool names_evaluation = evaluates && !input.eval_fingerprint.empty();
  std::vector<std::string> parts;
  if (!names_evaluation || input.train != nullptr) parts.push_back(TrainingExamples(input));
  if (names_evaluation) parts.push_back(absl::StrCat("evaluating on ", input.eval_fingerprint));
  if (!input.network_size.empty()) parts.push_back(input.network_size);
  return absl::StrCat(input.dataset, " (", absl::StrJoin(parts, "; "), ")");
}

train::RunFact TrainingDataFact(const std::string& fingerprint, bool trains) {
  return {.name = kTrainData,
          .value = fingerprint,
          .difference =
              [=](absl::string_view before) {
                return absl::StrCat(
                    "the training data have changed since the checkpoint was written: they were ", before, ", and are ",
                    fingerprint,
                    trains ? ". Training continues on the new data; its results will differ from those of a run with "
                             "the same data throughout"
                           : ". The results of an evaluation on the new data differ from those of the training's");
              },
          .must_match = false};
}

void ContinueInsideEpoch(const Input& input, train::Estimator& estimator) {
  const train::RunFact& data = estimator.fact(kTrainData);
  if (!data.before.empty() && data.before == data.value) return;
  data::Position own = estimator.state().position;
  std::vector<data::Position> of_workers = estimator.state().worker_positions;
  std::optional<data::Position> outside;
  const auto continue_inside = [&](data::Position& position) {
    if (position.index < input.num_train_examples) return;
    outside = position;
    position = {position.epoch + 1, 0};
  };
  std::for_each(of_workers.begin(), of_workers.end(), continue_inside);
  continue_inside(own);
  if (!outside) return;
  estimator.ContinueAt(own, std::move(of_workers));
  LOG(WARNING) << "the checkpoint was written after " << outside->index << " examples of epoch " << outside->epoch + 1
               << ", but the training data have only " << input.num_train_examples
               << " now: that epoch counts as finished";
}

}  // namespace official::run
