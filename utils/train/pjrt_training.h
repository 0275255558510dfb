// For tests: trains a model on the CPU's kernels and on the device of a PJRT plugin, evaluates and predicts with it on
// both, and compares.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "utils/data/dataset.h"
#include "utils/train/estimator.h"
#include "utils/train/training_difference.h"

namespace official::train {

class CpuAndPjrt {
 public:
  // Makes the examples of a training, others for another seed.
  using ExamplesFn = std::function<data::DatasetPtr(int seed)>;

  // A step takes `batch_size` of the examples, which are trained on once.
  CpuAndPjrt(Model model, ExamplesFn make_examples, int64_t batch_size, EstimatorConfig config = TestConfig());

  // kMayHappen: rounding alone may make an activation positive or not, or the largest of its window, after which all
  // tensors differ; with other examples it does not.
  enum class Flips { kNone, kMayHappen };

  // Trains on both from the same seed. The test fails if the losses or the tensors differ by more (TrainingDifference);
  // where flips may happen, if the tensors do with two sets of examples.
  void Train(double most_loss, double most_tensors, Flips flips = Flips::kNone);

  // The examples of the training, and what it has made on the CPU.
  const data::DatasetPtr& examples() const { return examples_; }
  const RecordedTraining& cpu() const { return cpu_; }

  // Evaluates this on both. The largest difference of a metric, the loss included, relative to the CPU's where that is
  // above 1.
  double EvaluationDifference(const data::DatasetPtr& examples) const;
  // Predicts with this on both, for one batch. The same of the predicted numbers; infinite if one that is whole
  // differs.
  double PredictionDifference(const data::DatasetPtr& examples) const;

 private:
  TrainingDifference TrainOnBoth(int seed);
  std::unique_ptr<Estimator> OpenTrained(const char* device_kind) const;

  const Model model_;
  const ExamplesFn make_examples_;
  const int64_t batch_size_;
  const EstimatorConfig config_;
  data::DatasetPtr examples_;
  RecordedTraining cpu_;
};

}  // namespace official::train
