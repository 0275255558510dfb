// The official residual networks for CIFAR-10 and ImageNet. Sources: He et al. 2015 (version 1) and 2016 (version 2);
// tensorflow/models official/resnet/resnet_model.py, resnet_run_loop.py, cifar10_main.py and imagenet_main.py at
// d64bcfe3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "utils/train/model.h"

namespace official::resnet {

enum class DatasetName { kCifar10, kImagenet };

// The constants of the official programs for a data set.
struct DatasetInfo {
  absl::string_view name, title;  // "cifar10", "CIFAR-10"
  int image_size;                 // images are float32 [image_size, image_size, 3]
  int num_classes;                // for ImageNet 1001: class 0 is the background
  int64_t num_train_examples, num_eval_examples;
  double weight_decay;
  int batch_denominator;  // the batch size that base_learning_rate is for
  std::vector<double> boundary_epochs, factors;
};
const DatasetInfo& InfoOf(DatasetName dataset);

// The way in which the learning rate falls after the warm-up. kPiecewise, upstream's: by factors[k] from
// boundary_epochs[k - 1] on, where boundaries are rounded down to whole steps and the step of a boundary still has the
// earlier rate. kCosine, kLinear: to 0 at total_steps, as tf.train.cosine_decay and
// polynomial_decay(power=1) with the steps that follow the warm-up. kConstant: not at all.
enum class LrSchedule { kPiecewise, kCosine, kLinear, kConstant };

// The learning rate begins with base_learning_rate * batch_size / the data set's batch_denominator. Boundaries and
// warm-up count num_train_examples / (batch_size * batches_per_step) steps per epoch, without the partial batches
// before evaluations.
struct ScheduleConfig {
  LrSchedule schedule = LrSchedule::kPiecewise;
  double base_learning_rate = 0.1;
  std::vector<double> boundary_epochs, factors;  // one factor more than boundaries
  double warmup_epochs = 0;                      // the rate rises linearly from 0
  int batch_size = 128;                          // global; with parameter servers that of a worker
  int batches_per_step = 1;                      // run::BatchesPerStep
  int64_t num_train_examples = 0;
  int64_t total_steps = 1;  // of all epochs, with the partial batches
};
train::LearningRateFn LearningRate(DatasetName dataset, const ScheduleConfig& config);

struct ModelConfig {
  DatasetName dataset = DatasetName::kImagenet;
  int size = 50;
  int version = 2;
  int num_classes = 0;  // 0: as many as the data set has
  double weight_decay = 1e-4;
  double label_smoothing = 0;
  double batch_norm_momentum = 0.997;  // the part of batch normalization's moving averages that a step keeps
  // True: batch statistics are those of all replicas, not of each one.
  bool sync_batch_norm = false;
  ScheduleConfig schedule = {};
};

// The number of outputs of the network.
int NumClasses(const ModelConfig& config);

// Returns InvalidArgument, naming the available sizes, if the data set has no network of this size.
absl::Status CheckSize(DatasetName dataset, int size);

// Features: images float32 [image_size, image_size, 3]; labels int32 []. Predictions: classes int64 [batch],
// probabilities float32 [batch, num_classes]. Evaluation: accuracy and, with more than 10 classes, accuracy_top_5. The
// size must pass CheckSize, the version be 1 or 2.
train::Model ResnetModel(const ModelConfig& config);

// Returns what evaluations show of their first images: their classes and those predicted, by their names, or by their
// numbers if `class_names`, else the names of all classes, is empty. Classes of one name have their numbers, too.
train::EvalSamplesFn ImageSamples(DatasetName dataset, std::vector<std::string> class_names);

}  // namespace official::resnet
