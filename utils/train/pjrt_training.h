// For tests: trains a model on the CPU's kernels and on the device of a PJRT plugin, evaluates and predicts with it on
// both, and compares.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "utils/data/dataset.h"
#include "utils/train/estimator.h"
#include "utils/train/training_difference.h"

namespace official::train {

class CpuAndPjrt {
 public:
  // Makes the examples of a training, others for another seed.
  using ExamplesFn = std::function<data::DatasetPtr(int seed)>;

  // A step takes `batch_size` of the examples, which are trained on once, and divides them among `num_replicas` devices
  // of each kind (OP_TEST_PJRT_DEVICES in pjrt_kind.cc).
  CpuAndPjrt(Model model, ExamplesFn make_examples, int64_t batch_size, EstimatorConfig config = TestConfig(),
             int num_replicas = 1);

  // kMayHappen: rounding alone may make an activation positive or not, or the largest of its window, after which all
  // tensors differ; with other examples it does not.
  enum class Flips { kNone, kMayHappen };

  // The most by which two trainings may differ (TrainingDifference).
  struct Limits {
    double loss, tensors;
    double of_norm = std::numeric_limits<double>::infinity();
  };

  // Trains on both from the same seed, and fails the test if they differ by more; where flips may happen, if the
  // tensors do with two sets of examples.
  void Train(const Limits& most, Flips flips = Flips::kNone);

  // The examples of the training, and what it has made on the CPU.
  const data::DatasetPtr& examples() const { return examples_; }
  const RecordedTraining& cpu() const { return cpu_; }

  // Opens the checkpoint of either on one device of each kind and evaluates it there. The largest difference of a
  // metric, the loss included, between the two devices, relative to the CPU's where that is above 1.
  double EvaluationDifference(const data::DatasetPtr& examples) const;
  // Predicts with the CPU's on both, for one batch. The same of the predicted numbers; infinite if one that is whole
  // differs.
  double PredictionDifference(const data::DatasetPtr& examples) const;

 private:
  TrainingDifference TrainOnBoth(int seed);
  // Opens the checkpoint of a training on a device of this kind.
  std::unique_ptr<Estimator> Open(const RecordedTraining& trained, const char* device_kind) const;
  double EvaluationDifference(const RecordedTraining& trained, const data::DatasetPtr& examples) const;

  const Model model_;
  const ExamplesFn make_examples_;
  const int64_t batch_size_;
  const EstimatorConfig config_;
  const int num_replicas_;
  data::DatasetPtr examples_;
  RecordedTraining cpu_, pjrt_;
};

}  // namespace official::train
