#include "utils/run/input.h"

#include <catch2/catch.hpp>
#include <vector>

#include "utils/train/rounds.h"

namespace official::run {
namespace {

using compute::DType;
using data::Position;

// 205 examples, of which a batch has 20 (of the last, 5).
Input Synthetic() {
  const data::ElementSpec spec = {.features = {{"", {DType::kFloat32, {2}}}}, .labels = {{"", {DType::kInt32, {}}}}};
  return SyntheticInput({.stands_for = "pairs", .spec = spec, .num_train_examples = 205, .num_eval_examples = 50}, 20);
}

TEST_CASE("A few batches are the whole of the data") {
  const Input input = OverfitBatches(Synthetic(), 3, 20);
  CHECK(input.num_train_examples == 60);
  CHECK(input.num_kept_batches == 3);
  const Input all = OverfitBatches(Synthetic(), 1'000'000, 20);
  CHECK(all.num_train_examples == 205);
  CHECK(all.num_kept_batches == 11);
  Config config;
  config.base.batch_size = 20;
  CHECK(BatchesOf(config, all).num_kept == 11);
  CHECK(BatchesOf(config, Synthetic()).num_kept == 0);
}

TEST_CASE("A few batches of epochs that carry over are at most the whole ones of the first epoch") {
  Input input = Synthetic();
  input.carries_over = true;
  input = OverfitBatches(input, 1'000'000, 20);
  CHECK(input.num_kept_batches == 10);
  CHECK(input.steps_per_epoch == 10);
  CHECK_FALSE(input.carries_over);
}

TEST_CASE("The few batches are those of seed 0, whatever the run's seed, also of a worker that has each second one") {
  Input input = Synthetic();
  input.train = [](const ReadOptions& read) {
    CHECK(read.seed == 0);
    CHECK(read.start == Position{});
    CHECK(read.rows.of_batches == 1);
    CHECK(read.rows.num_replicas == 3);
    return Synthetic().train(read);
  };
  input = OverfitBatches(input, 2, 20);
  const data::HeldRows rows{.replicas = {1, 2}, .num_replicas = 3, .of_batches = 2, .batch = 1};
  const auto train = input.train({.seed = 7, .start = {5, 20}, .end_epoch = 6, .rows = rows}).value();
  CHECK(train->Next().value()->first == Position{5, 20});
  CHECK_FALSE(train->Next().value());
  const auto eval = input.eval(rows).value();
  CHECK(eval->num_examples() == 40);
  CHECK(eval->Next().value()->first == Position{});
}

TEST_CASE("Where steps are not of a number of examples, a begun epoch of few batches has those that are left") {
  Input input = Synthetic();
  input.steps_per_epoch = 11;
  input = OverfitBatches(input, 3, 20);
  CHECK(*input.steps_per_epoch == 3);
  CHECK(input.num_kept_batches == 3);
  const train::EpochSize epoch = {
      .num_examples = input.num_train_examples, .batch_size = 20, .steps = input.steps_per_epoch};
  const train::Schedule schedule = {.train_epochs = 4, .epochs_between_evals = 2};
  const auto source = input.train({.end_epoch = 4}).value();
  train::RunState state;
  for (auto batch = source->Next().value(); batch; batch = source->Next().value()) {
    state.position = batch->next;
    ++state.global_step;
    CHECK(train::TotalSteps(schedule, state, epoch) == 12);
    CHECK(train::EvaluationsLeft(schedule, state, epoch) == (state.global_step == 12 ? 1
                                                             : state.global_step < 6 ? 2
                                                                                     : 1));
  }
  CHECK(state.global_step == 12);
}

}  // namespace
}  // namespace official::run
