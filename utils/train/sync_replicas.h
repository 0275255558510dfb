// SyncReplicas: whose gradients make a step of synchronous training with parameter servers. It is what
// tf.compat.v1.train.SyncReplicasOptimizer is made of (TensorFlow 2.15: python/training/sync_replicas_optimizer.py and
// core/kernels/conditional_accumulator_base.h): an accumulator that takes the gradients of a step and drops those of
// older ones, and a queue of tokens, of which a worker takes one to go on with the step that is its value.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace official::train {

class SyncReplicas {
 public:
  struct Options {
    int replicas_to_aggregate = 1;  // gradients of a step; the rest of them are dropped
    int num_workers = 1;            // total_num_replicas
    int num_tokens = 0;             // at the beginning
    bool has_tokens = true;         // false: nobody takes any
  };
  // Begins with `step`.
  SyncReplicas(const Options& options, int64_t step);

  int64_t step() const { return step_; }

  // Takes a gradient that was computed in step `local_step`. False if it is dropped, because that is an older one.
  bool Apply(int worker, int64_t local_step, std::string gradient);
  // True if the gradients of the step are there. It needs no more than there are workers that have not left, or, if it
  // is to have several of each, as many of each of those; but at least one.
  bool IsComplete() const { return static_cast<int>(gradients_.size()) >= needed(); }
  // Returns the gradients, of which the update takes the mean, by worker and then in the order in which they came. The
  // next step begins, with a token for each worker, or for each of its gradients if those are more.
  std::vector<std::string> Take();

  // Returns the value of the oldest token, which the worker takes; nothing if there are none but for workers that have
  // waited longer. A worker waits from its Apply on, so that a fast one does not take the token of another.
  std::optional<int64_t> TakeToken(int worker);
  // Returns the first worker of which the step has no gradient; nothing if it has one of each.
  std::optional<int> FirstMissing() const;

  // The worker applies nothing more, or takes part again.
  void Leave(int worker);
  void Return(int worker);

 private:
  struct Gradient {
    int worker;
    std::string bytes;
  };
  int needed() const;
  void Wait(int worker);

  const Options options_;
  int64_t step_;
  std::vector<bool> has_left_;       // by worker
  std::vector<Gradient> gradients_;  // of the step, by worker
  std::deque<int64_t> tokens_;
  std::deque<int> waiting_;  // workers, first who has waited longest
};

}  // namespace official::train
