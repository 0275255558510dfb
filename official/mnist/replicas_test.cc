// Training on several CPU devices equals training on one.

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "official/mnist/small_run.h"

namespace official::mnist {
namespace {

using Catch::Matchers::Contains;

// 52 steps with dropout, every fourth of them on a batch of 31, which neither 2 nor 4 divide.
MnistConfig FiftySteps(int num_cpu_devices) {
  MnistConfig config = SmallConfig(/*train_examples=*/151, /*test_examples=*/41);
  config.base.batch_size = 40;
  config.base.train_epochs = 13;
  config.base.epochs_between_evals = 13;
  config.train.log_every_n_steps = 1;
  config.performance.num_cpu_devices = num_cpu_devices;
  config.train.check_replicas_steps = 5;
  return config;
}

TEST_CASE("2 and 4 replicas end with the bits of one device, for every way to reduce") {
  const MnistConfig one = FiftySteps(1);
  Run(one);
  const std::vector<double> want = Losses(one);
  REQUIRE(want.size() == 53);  // and the evaluation's
  for (const int n : {2, 4}) {
    for (const char* alg : {"reduction_to_one_device", "hierarchical_copy"}) {
      CAPTURE(n, alg);
      MnistConfig many = FiftySteps(n);
      many.performance.all_reduce_alg = alg;
      Run(many);
      CheckSameBits(one, many);
      // What is shown is a mean of means, and may differ in its last digits.
      const std::vector<double> losses = Losses(many);
      REQUIRE(losses.size() == want.size());
      for (size_t i = 0; i < want.size(); ++i) CHECK(std::abs(losses[i] - want[i]) < 1e-6);
    }
  }
}

TEST_CASE("So do 3, within rounding, and any number of threads, to the bit") {
  MnistConfig one = SmallConfig();
  one.base.batch_size = 99;
  one.train.log_every_n_steps = 1;
  MnistConfig other = one;
  other.train.model_dir = NewDirectory("model");
  Run(one);
  SECTION("3 replicas") {
    other.performance.num_cpu_devices = 3;
    Run(other);
    const std::vector<double> want = Losses(one), losses = Losses(other);
    REQUIRE(losses.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) CHECK(std::abs(losses[i] - want[i]) < 1e-5);
  }
  SECTION("threads") {
    other.performance.intra_op_parallelism_threads = GENERATE(1, 4);
    Run(other);
    CheckSameBits(one, other);
  }
}

TEST_CASE("A replica without a share in the last batch adds nothing") {
  MnistConfig one = SmallConfig(/*train_examples=*/42, /*test_examples=*/9);  // 40, and 2 for 4 replicas
  one.base.batch_size = 40;
  one.base.train_epochs = 5;
  one.train.log_every_n_steps = 1;
  MnistConfig four = one;
  four.train.model_dir = NewDirectory("model");
  four.performance.num_cpu_devices = 4;
  Run(one);
  Run(four);
  const std::vector<double> want = Losses(one), losses = Losses(four);
  REQUIRE(losses.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) CHECK(std::abs(losses[i] - want[i]) < 1e-5);
}

TEST_CASE("Two replicas in two parts end with the bits of one run, in every type") {
  MnistConfig whole = SmallConfig();
  whole.performance.num_cpu_devices = 2;
  whole.train.dtype = GENERATE(from_range(compute::StorageTypes()));
  whole.train.loss_scale.dynamic = whole.train.dtype == compute::DType::kFloat16;
  // So large that the first steps are skipped.
  if (whole.train.loss_scale.dynamic) whole.train.loss_scale.value = 0x1p22f;
  whole.base.train_epochs = 3;
  MnistConfig parts = whole;
  parts.train.model_dir = NewDirectory("model");
  Run(whole);
  for (const int steps : {1, 5, 8}) {
    parts.performance.max_train_steps = steps;
    Run(parts);
  }
  parts.performance.max_train_steps.reset();
  Run(parts);
  CheckSameBits(whole, parts);
}

TEST_CASE("What does not fit several devices is one clear error") {
  MnistConfig config = SmallConfig();
  config.performance.num_cpu_devices = 3;
  const absl::Status odd = RunStatus(config);
  CHECK(absl::IsInvalidArgument(odd));
  CHECK_THAT(std::string(odd.message()), Contains("Found 3 CPU devices with a batch size of 100; try --batch_size=99"));
  config.performance.num_cpu_devices = 2;
  config.performance.all_reduce_alg = "nccl";
  CHECK(absl::IsInvalidArgument(RunStatus(config)));
}

}  // namespace
}  // namespace official::mnist
