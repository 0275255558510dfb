#include "utils/distribute/strategy.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <latch>
#include <thread>

#include "utils/compute/core/status.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/collective/collective.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/loss_scale/loss_scale.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/pjrt/pjrt_kind.h"
#include "utils/compute/program/program.h"
#include "utils/compute/testing/op_test.h"
#include "utils/distribute/device_summer.h"
#include "utils/distribute/in_process_group.h"
#include "utils/distribute/memory_exchange.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Graph;
using compute::Program;
using compute::Tensor;
using compute::Value;

std::unique_ptr<Strategy> Mirrored(int n, const std::string& alg = "reduction_to_one_device") {
  return Strategy::Create({.num_replicas = n, .num_threads = 2, .all_reduce_alg = alg}).value();
}

TEST_CASE("The devices of a strategy are the first ones, or those that are named") {
  const auto names = [](const std::vector<int>& indices) {
    const auto strategy = Strategy::Create({.num_replicas = 2, .device_indices = indices, .num_threads = 2}).value();
    return std::string(strategy->device(0).name()) + " " + std::string(strategy->device(1).name());
  };
  CHECK(names({}) == "cpu:0 cpu:1");
  CHECK(names({3, 1}) == "cpu:3 cpu:1");
}

TEST_CASE("A strategy has the threads of the process, whatever strategy this thread worked for before") {
  const auto threads = [] { return Strategy::Create({.num_replicas = 1}).value()->Description(); };
  const std::string before = threads();
  Strategy::Create({.num_replicas = 1, .num_threads = 3}).value()->device(0).MakeCurrent();
  CHECK(threads() == before);
  Strategy::Create({.num_replicas = 1, .num_threads = 1}).value()->device(0).MakeCurrent();
  CHECK(threads() == before);
}

// Sums x [1000], 2 x and y [300000] over the devices in `packs`, a number or sizes, and gives x back unsummed as well.
struct Sums {
  Graph graph;
  compute::GraphRoots roots;
  template <typename Packs>
  explicit Sums(const Packs& packs) {
    const Value x = graph.Input("x", {DType::kFloat32, {1000}}), y = graph.Input("y", {DType::kFloat32, {300000}});
    const Value doubled = Add(x, x), moved = Add(y, y);
    roots.feeds = {x, y};
    roots.fetches = compute::AllReduce({moved, doubled, x}, packs);
    roots.fetches.push_back(x);
    REQUIRE(graph.status().ok());
  }
};

TEST_CASE("The gradient of a sum over the devices is the sum of all devices' gradients") {
  // Each device's loss is a factor of its own times the sum of squares of what all give together.
  constexpr int kDevices = 3, kElements = 4;
  const double factors[kDevices] = {1, -0.5, 2};
  std::vector<std::vector<double>> x(kDevices, std::vector<double>(kElements));
  for (int r = 0; r < kDevices; ++r) {
    for (int i = 0; i < kElements; ++i) x[r][i] = 0.1 * (r + 1) * (i - 1);
  }
  const auto total_loss = [&] {
    double loss = 0;
    for (int i = 0; i < kElements; ++i) {
      double sum = 0;
      for (int r = 0; r < kDevices; ++r) sum += x[r][i];
      for (const double factor : factors) loss += factor * sum * sum;
    }
    return loss;
  };
  const auto strategy = Mirrored(kDevices, "reduction_to_one_device");
  std::vector<std::vector<float>> gradients(kDevices);
  const absl::Status status = strategy->Run([&](int r) -> absl::Status {
    Graph graph;
    const Value in = graph.Input("x", {DType::kFloat32, {kElements}});
    const Value sum = compute::AllReduce({in}, 1)[0];
    const Value factor = graph.Constant(Tensor::Scalar(static_cast<float>(factors[r])));
    const Value gradient = compute::Gradients(compute::Mul(compute::Mul(sum, sum), factor), {in})[0];
    compute::VariableStore variables(strategy->device(r));
    ASSIGN_OR_RETURN(const auto program,
                     Program::Compile(graph, {{in}, {gradient}, {}}, strategy->device(r), variables));
    const std::vector<float> feed(x[r].begin(), x[r].end());
    RETURN_IF_ERROR(program->Run({Tensor::Of<float>({kElements}, absl::MakeConstSpan(feed))}));
    ASSIGN_OR_RETURN(const Tensor result, program->Fetch(0));
    gradients[r].assign(result.flat<float>().begin(), result.flat<float>().end());
    return absl::OkStatus();
  });
  INFO(status);
  REQUIRE(status.ok());
  for (int r = 0; r < kDevices; ++r) {
    for (int i = 0; i < kElements; ++i) {
      constexpr double kStep = 1e-4;
      x[r][i] += kStep;
      const double above = total_loss();
      x[r][i] -= 2 * kStep;
      const double below = total_loss();
      x[r][i] += kStep;
      CHECK(gradients[r][i] == Approx((above - below) / (2 * kStep)).margin(1e-6));
    }
  }
  compute::testing::RecordGradient(compute::op::AllReduceStart, "cpu", DType::kFloat32);
  compute::testing::RecordGradient(compute::op::AllReduceDone, "cpu", DType::kFloat32);
}

// The elements of the values in each pack that a graph gives away.
std::vector<std::vector<int64_t>> PacksOf(const Graph& graph) {
  std::vector<std::vector<int64_t>> packs;
  for (const auto& node : graph.nodes()) {
    if (!node->Is(compute::op::AllReduceStart)) continue;
    std::vector<int64_t>& pack = packs.emplace_back();
    for (const Value& value : node->inputs()) pack.push_back(value.shape().num_elements());
  }
  return packs;
}

TEST_CASE("Packs of sizes are filled in the order of computation, and the last one is small") {
  using Packs = std::vector<std::vector<int64_t>>;
  // The packs of values of these sizes, in elements, that are given in another order than they are computed in.
  const auto packs_of = [](const std::vector<int64_t>& elements, const compute::PackSizes& sizes) {
    Graph graph;
    std::vector<Value> values;
    for (size_t i = 0; i < elements.size(); ++i) {
      values.insert(values.begin(), graph.Input(std::to_string(i), {DType::kFloat32, {elements[i]}}));
    }
    const std::vector<Value> sums = compute::AllReduce(values, sizes);
    REQUIRE(graph.status().ok());
    for (size_t i = 0; i < values.size(); ++i) CHECK(sums[i].type() == values[i].type());
    return PacksOf(graph);
  };
  const compute::PackSizes sizes{.most_bytes = 4 * 32, .last_bytes = 4 * 4};
  CHECK(packs_of({10, 20, 30, 5, 1, 3}, sizes) == Packs{{10, 20}, {30}, {5}, {1, 3}});
  CHECK(packs_of({10, 22, 1, 1, 2, 2}, sizes) == Packs{{10, 22}, {1, 1}, {2, 2}});
  CHECK(packs_of({1, 1, 2}, sizes) == Packs{{1, 1, 2}});
  CHECK(packs_of({1, 1, 3}, sizes) == Packs{{1}, {1, 3}});
  CHECK(packs_of({2, 100, 2, 50}, sizes) == Packs{{2}, {100}, {2}, {50}});
  CHECK(packs_of({100}, sizes) == Packs{{100}});
  CHECK(packs_of({10, 20, 30, 5, 1, 3}, {.most_bytes = 1, .last_bytes = 1, .num_packs = 2}) ==
        Packs{{10, 20, 30}, {5, 1, 3}});
  CHECK(packs_of({10, 20, 5}, {.most_bytes = 1, .last_bytes = 1}) == Packs{{10}, {20}, {5}});
}

TEST_CASE("The number of packs can be given") {
  const auto sizes_with = [](std::optional<int> num_packs) {
    return Strategy::Create({.num_replicas = 2, .num_packs = num_packs}).value()->pack_sizes();
  };
  CHECK(!sizes_with(std::nullopt));
  REQUIRE(sizes_with(3));
  CHECK(sizes_with(3)->num_packs == 3);
  REQUIRE(sizes_with(0));
  CHECK(sizes_with(0)->num_packs == 0);
  CHECK(sizes_with(0)->most_bytes == 1);
}

TEST_CASE("The bits of sums do not depend on the packs") {
  const std::string alg = GENERATE("reduction_to_one_device", "hierarchical_copy");
  constexpr int kDevices = 3;
  const auto sums_of = [&](const auto& packs) {
    const auto strategy = Mirrored(kDevices, alg);
    const Sums sums(packs);
    std::vector<float> results;
    const absl::Status status = strategy->Run([&](int r) -> absl::Status {
      compute::VariableStore variables(strategy->device(r));
      ASSIGN_OR_RETURN(const auto program, Program::Compile(sums.graph, sums.roots, strategy->device(r), variables));
      RETURN_IF_ERROR(
          program->Run({compute::testing::RandomTensor({1000}, r), compute::testing::RandomTensor({300000}, 10 + r)}));
      for (int i = 0; r == 0 && i < 3; ++i) {
        ASSIGN_OR_RETURN(const Tensor sum, program->Fetch(i));
        results.insert(results.end(), sum.flat<float>().begin(), sum.flat<float>().end());
      }
      return absl::OkStatus();
    });
    REQUIRE(status.ok());
    return results;
  };
  const std::vector<float> together = sums_of(1);
  REQUIRE(together.size() == 302000);
  CHECK((sums_of(3) == together));
  CHECK((sums_of(compute::PackSizes{.most_bytes = 1, .last_bytes = 1}) == together));
}

TEST_CASE("AllReduce sums over the devices, in every order and packing") {
  const int n = GENERATE(2, 3, 4), num_packs = GENERATE(1, 2, 4);
  const std::string alg = GENERATE("reduction_to_one_device", "hierarchical_copy");
  CAPTURE(n, num_packs, alg);
  const auto strategy = Mirrored(n, alg);
  const Sums sums(num_packs);
  std::vector<std::vector<Tensor>> feeds(n), results(n);
  std::vector<double> want_x(1000), want_y(300000);
  for (int r = 0; r < n; ++r) {
    feeds[r] = {compute::testing::RandomTensor({1000}, r), compute::testing::RandomTensor({300000}, 10 + r)};
    for (int i = 0; i < 1000; ++i) want_x[i] += feeds[r][0].data<float>()[i];
    for (int i = 0; i < 300000; ++i) want_y[i] += 2.0 * feeds[r][1].data<float>()[i];
  }
  std::vector<std::unique_ptr<compute::VariableStore>> variables;
  for (int r = 0; r < n; ++r) variables.push_back(std::make_unique<compute::VariableStore>(strategy->device(r)));
  std::vector<std::unique_ptr<Program>> programs(n);
  REQUIRE(strategy
              ->Run([&](int r) -> absl::Status {
                programs[r] = Program::Compile(sums.graph, sums.roots, strategy->device(r), *variables[r]).value();
                return absl::OkStatus();
              })
              .ok());
  compute::testing::RecordKernels(*programs[0], "cpu");
  for (int step = 0; step < 3; ++step) {
    REQUIRE(strategy->Run([&](int r) { return programs[r]->Run(feeds[r]); }).ok());
  }
  for (int r = 0; r < n; ++r) {
    const Tensor y = programs[r]->Fetch(0).value(), doubled = programs[r]->Fetch(1).value();
    const Tensor x = programs[r]->Fetch(2).value(), own = programs[r]->Fetch(3).value();
    double error = 0;
    for (int i = 0; i < 1000; ++i) error = std::max<double>(error, std::abs(x.data<float>()[i] - want_x[i]));
    for (int i = 0; i < 1000; ++i) error = std::max<double>(error, std::abs(doubled.data<float>()[i] - 2 * want_x[i]));
    for (int i = 0; i < 300000; ++i) error = std::max<double>(error, std::abs(y.data<float>()[i] - want_y[i]));
    CHECK(error < 2e-6);
    // What was summed is read elsewhere too, and stays.
    CHECK(std::equal(own.data<float>(), own.data<float>() + 1000, feeds[r][0].data<float>()));
    // Every device holds the same bits.
    const Tensor first = programs[0]->Fetch(0).value();
    CHECK(std::memcmp(y.raw_data(), first.raw_data(), y.num_bytes()) == 0);
  }
}

// Devices of kind "cuda", which strategy_emulated_test links: at least as many as wanted, those beyond the machine's
// GPUs on the same ones. Empty without.
std::vector<std::unique_ptr<compute::Device>> CudaDevices(int wanted) {
  std::vector<std::unique_ptr<compute::Device>> devices;
  const std::vector<std::string> kinds = compute::testing::KindsUnderTest();
  if (std::find(kinds.begin(), kinds.end(), compute::kCudaKind) == kinds.end()) return devices;
  for (auto device = compute::MakeDevice("cuda"); device.ok();
       device = compute::MakeDevice("cuda", {.index = static_cast<int>(devices.size())})) {
    devices.push_back(*std::move(device));
  }
  for (int i = 0; static_cast<int>(devices.size()) < wanted; ++i) {
    devices.push_back(compute::MakeDevice("cuda", {.index = i}).value());
  }
  return devices;
}

std::vector<compute::Device*> Pointers(const std::vector<std::unique_ptr<compute::Device>>& devices) {
  std::vector<compute::Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  return pointers;
}

// Sums the same numbers of all devices, three times, each device on its thread: run, recorded and replayed.
void CheckSums(compute::CommunicatorGroup& group, const std::vector<compute::Device*>& devices) {
  const int n = static_cast<int>(devices.size());
  const Sums sums(compute::PackSizes{.most_bytes = 4000, .last_bytes = 4000});
  REQUIRE(PacksOf(sums.graph).size() == 3);
  const std::vector<Tensor> feeds = {compute::testing::RandomTensor({1000}, 1),
                                     compute::testing::RandomTensor({300000}, 2)};
  std::vector<std::unique_ptr<compute::VariableStore>> variables(n);
  std::vector<std::unique_ptr<Program>> programs(n);
  std::vector<absl::Status> statuses(n);
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      devices[r]->set_communicator(&group.communicator(r));
      variables[r] = std::make_unique<compute::VariableStore>(*devices[r]);
      programs[r] = Program::Compile(sums.graph, sums.roots, *devices[r], *variables[r]).value();
      for (int step = 0; step < 3; ++step) statuses[r].Update(programs[r]->Run(feeds));
    });
  }
  for (std::thread& thread : threads) thread.join();
  compute::testing::RecordKernels(*programs[0], "cuda");
  for (int r = 0; r < n; ++r) {
    INFO(statuses[r]);
    REQUIRE(statuses[r].ok());
    const Tensor y = programs[r]->Fetch(0).value(), x = programs[r]->Fetch(2).value();
    const Tensor own = programs[r]->Fetch(3).value();
    for (int i = 0; i < 1000; ++i) REQUIRE(x.data<float>()[i] == Approx(n * feeds[0].data<float>()[i]).margin(1e-5));
    for (int i = 0; i < 300000; ++i) {
      REQUIRE(y.data<float>()[i] == Approx(2 * n * feeds[1].data<float>()[i]).margin(1e-5));
    }
    CHECK(std::equal(own.data<float>(), own.data<float>() + 1000, feeds[0].data<float>()));
  }
}

TEST_CASE("The devices of a PJRT plugin sum within a module") {
  constexpr int kDevices = 3;
  const std::vector<std::string> kinds = compute::testing::KindsUnderTest();
  if (std::find(kinds.begin(), kinds.end(), compute::kPjrtKind) == kinds.end()) return;
  const auto strategy = Strategy::Create({.device_kind = compute::kPjrtKind, .num_replicas = kDevices}).value();
  const Sums sums(compute::PackSizes{.most_bytes = 4000, .last_bytes = 4000});
  REQUIRE(PacksOf(sums.graph).size() == 3);
  std::vector<std::vector<Tensor>> feeds(kDevices), results(kDevices);
  for (int r = 0; r < kDevices; ++r) {
    feeds[r] = {compute::testing::RandomTensor({1000}, r), compute::testing::RandomTensor({300000}, 10 + r)};
  }
  const absl::Status status = strategy->Run([&](int r) -> absl::Status {
    compute::VariableStore variables(strategy->device(r));
    ASSIGN_OR_RETURN(const auto program, Program::Compile(sums.graph, sums.roots, strategy->device(r), variables));
    for (int step = 0; step < 3; ++step) RETURN_IF_ERROR(program->Run(feeds[r]));
    for (int i = 0; i < 4; ++i) {
      ASSIGN_OR_RETURN(const Tensor result, program->Fetch(i));
      results[r].push_back(result.Clone());
    }
    if (r == 0) compute::testing::RecordKernels(*program, compute::kPjrtKind);
    return absl::OkStatus();
  });
  INFO(status);
  REQUIRE(status.ok());
  for (int r = 0; r < kDevices; ++r) {
    for (int place = 0; place < 3; ++place) {  // 2 y, 2 x, x
      const int feed = place == 0 ? 1 : 0;
      const double factor = place == 2 ? 1 : 2;
      double error = 0;
      for (int64_t i = 0; i < results[r][place].num_elements(); ++i) {
        double want = 0;
        for (int d = 0; d < kDevices; ++d) want += factor * feeds[d][feed].data<float>()[i];
        error = std::max(error, std::abs(results[r][place].data<float>()[i] - want));
      }
      CHECK(error < 2e-6);
    }
    // What was summed is read elsewhere too, and stays.
    const Tensor &own = results[r][3], &fed = feeds[r][0];
    CHECK(std::memcmp(own.raw_data(), fed.raw_data(), fed.num_bytes()) == 0);
  }
}

TEST_CASE("GetDistributionStrategy chooses by the number of GPUs") {
  const auto on_cpu = GetDistributionStrategy(0).value();
  CHECK(on_cpu->name() == "one_device");
  CHECK(on_cpu->device(0).uses_host_memory());
  const auto num_gpus = static_cast<int>(CudaDevices(0).size());
  CHECK(!GetDistributionStrategy(num_gpus + 1).ok());
  if (num_gpus == 0) {
    CHECK_THAT(std::string(GetDistributionStrategy(1).status().message()),
               Contains("no device of kind cuda") && Contains("once compute::LoadCudaBackend() has found them"));
  }
  if (num_gpus < 2) return;
  CHECK(GetDistributionStrategy(1).value()->name() == "one_device");
  const auto mirrored = GetDistributionStrategy(2, "hierarchical_copy").value();
  CHECK(mirrored->name() == "mirrored");
  CHECK(mirrored->num_replicas_in_sync() == 2);
}

// What one GPU can test of NCCL is that it is called as it should be, and that a CUDA graph holds what it does.
TEST_CASE("NCCL sums over the GPUs that there are") {
  const auto devices = CudaDevices(0);
  if (devices.empty()) {
    CHECK(compute::FindDeviceKind(compute::kCudaKind) == nullptr);
    return;
  }
  const compute::DeviceKind& cuda = *compute::FindDeviceKind(compute::kCudaKind);
  REQUIRE(cuda.all_reduce.has_value());
  CHECK(cuda.all_reduce->name == "nccl");
  const auto group = cuda.all_reduce->make_group(Pointers(devices), std::chrono::minutes(1), std::nullopt).value();
  CheckSums(*group, Pointers(devices));
  group->Abort(absl::InternalError("ill"));
  CHECK(absl::IsFailedPrecondition(group->Reset()));
}

TEST_CASE("A GPU whose gradients do not come is named, and nothing can be summed any more") {
  const auto devices = CudaDevices(0);
  if (devices.size() < 2) return;
  const auto group = compute::FindDeviceKind(compute::kCudaKind)
                         ->all_reduce->make_group(Pointers(devices), std::chrono::seconds(1), std::nullopt)
                         .value();
  compute::Device& device = *devices[0];
  device.set_communicator(&group->communicator(0));
  device.MakeCurrent();
  const std::shared_ptr<void> memory = device.Allocate(8 * sizeof(float)).value();
  const std::vector<compute::Communicator::Buffer> pack = {{static_cast<float*>(memory.get()), 8}};
  absl::Status status = group->communicator(0).Start(pack);
  status.Update(group->communicator(0).Finish());
  status.Update(device.Synchronize());
  CHECK(absl::IsDeadlineExceeded(status));
  const std::string others = devices.size() == 2 ? "1" : "1, 2";
  CHECK_THAT(std::string(status.message()),
             Contains("replica 0 has waited 1 s for the gradients of replica " + others));
  CHECK(absl::IsCancelled(group->communicator(1).Start(pack)));
  CHECK(absl::IsFailedPrecondition(group->Reset()));
  device.set_communicator(nullptr);
}

TEST_CASE("The error of one GPU ends the others' waiting, and the run") {
  if (CudaDevices(0).size() < 2) return;
  const auto strategy = Strategy::Create({.device_kind = compute::kCudaKind, .num_replicas = 2}).value();
  const Sums sums(2);
  const std::vector<Tensor> feeds = {Tensor(DType::kFloat32, {1000}), Tensor(DType::kFloat32, {300000})};
  std::vector<std::unique_ptr<compute::VariableStore>> variables(2);
  std::vector<std::unique_ptr<Program>> programs(2);
  REQUIRE(strategy
              ->Run([&](int r) -> absl::Status {
                variables[r] = std::make_unique<compute::VariableStore>(strategy->device(r));
                ASSIGN_OR_RETURN(programs[r],
                                 Program::Compile(sums.graph, sums.roots, strategy->device(r), *variables[r]));
                return programs[r]->Run(feeds);
              })
              .ok());
  const absl::Status status = strategy->Run([&](int r) -> absl::Status {
    if (r == 1) return absl::DataLossError("replica 1 is ill");
    RETURN_IF_ERROR(programs[r]->Run(feeds));
    return strategy->device(r).Synchronize();
  });
  CHECK(status == absl::DataLossError("replica 1 is ill"));
  const absl::Status broken = strategy->Run([](int) { return absl::OkStatus(); });
  CHECK(absl::IsFailedPrecondition(broken));
  CHECK_THAT(std::string(broken.message()), Contains("the GPUs' connections were cut"));
}

// Two workers, which are threads here, with a GPU each.
struct TwoWorkers {
  std::vector<std::unique_ptr<Exchange>> exchanges = MakeMemoryExchanges(2);

  // Calls f(worker, strategy) for both.
  template <typename F>
  void Run(const F& f) const {
    std::vector<std::thread> threads;
    for (int w = 0; w < 2; ++w) {
      threads.emplace_back([this, w, &f] {
        f(w, *Strategy::Create({.device_kind = compute::kCudaKind,
                                .num_replicas = 2,
                                .workers = Workers{exchanges[w].get(), {{0, 1}, {1, 2}}},
                                .device_indices = {w}})
                  .value());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

// What replica `r` has of what Sums sums.
std::vector<Tensor> FeedsOf(int64_t r) {
  std::vector<Tensor> feeds = {Tensor(DType::kFloat32, {1000}), Tensor(DType::kFloat32, {300000})};
  for (Tensor& feed : feeds) {
    for (int64_t i = 0; i < feed.num_elements(); ++i) {
      feed.data<float>()[i] = std::sin(static_cast<float>(i + 7 * r)) + static_cast<float>(r) / 3;
    }
  }
  return feeds;
}

// Runs a program in several steps on a local replica, and returns its last sums.
absl::Status RunSums(const Sums& sums, Strategy& strategy, int local_replica, std::vector<Tensor>& last) {
  compute::Device& device = strategy.device(local_replica);
  compute::VariableStore variables(device);
  ASSIGN_OR_RETURN(const auto program, Program::Compile(sums.graph, sums.roots, device, variables));
  const std::vector<Tensor> feeds = FeedsOf(strategy.local_replicas().begin + local_replica);
  for (int step = 0; step < 3; ++step) RETURN_IF_ERROR(program->Run(feeds));
  for (int i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(last.emplace_back(), program->Fetch(i));
  }
  return device.Synchronize();
}

TEST_CASE("GPUs of two workers sum by NCCL as those of one do") {
  if (CudaDevices(0).size() < 2) return;
  const Sums sums(2);
  std::vector<std::vector<Tensor>> of_one(2), of_two(2);
  {
    const auto one = Strategy::Create({.device_kind = compute::kCudaKind, .num_replicas = 2}).value();
    REQUIRE(one->Run([&](int r) { return RunSums(sums, *one, r, of_one[r]); }).ok());
  }
  std::vector<absl::Status> statuses(2);
  TwoWorkers().Run([&](int w, Strategy& strategy) {
    statuses[w] = strategy.Run([&](int r) { return RunSums(sums, strategy, r, of_two[w]); });
  });
  for (int w = 0; w < 2; ++w) {
    INFO(statuses[w]);
    REQUIRE(statuses[w].ok());
    for (int i = 0; i < 3; ++i) {
      const Tensor &a = of_one[w][i], &b = of_two[w][i];
      REQUIRE(std::equal(a.data<float>(), a.data<float>() + a.num_elements(), b.data<float>()));
    }
  }
}

TEST_CASE("A worker that fails ends the wait of another one's GPU for NCCL") {
  if (CudaDevices(0).size() < 2) return;
  const Sums sums(2);
  std::vector<absl::Status> statuses(2);
  std::latch connected(2);
  TwoWorkers().Run([&](int w, Strategy& strategy) {
    connected.arrive_and_wait();
    std::vector<Tensor> last;
    statuses[w] = strategy.Run([&](int r) -> absl::Status {
      if (w == 1) return absl::DataLossError("worker 1 is ill");
      return RunSums(sums, strategy, r, last);
    });
    CHECK(absl::IsFailedPrecondition(strategy.Run([](int) { return absl::OkStatus(); })));
  });
  CHECK(absl::IsDataLoss(statuses[1]));
  CHECK(absl::IsCancelled(statuses[0]));
  CHECK_THAT(std::string(statuses[0].message()), Contains("worker 1 has failed: worker 1 is ill"));
}

TEST_CASE("A worker whose GPU waits for NCCL can end when another one has failed between two steps") {
  if (CudaDevices(0).size() < 2) return;
  const Sums sums(2);
  std::vector<absl::Status> statuses(2);
  absl::Status gathered;
  std::latch given(1), failed(1);
  TwoWorkers().Run([&](int w, Strategy& strategy) {
    compute::VariableStore variables(strategy.device(0));
    std::unique_ptr<Program> program;
    const auto step = [&] {
      return strategy.Run([&](int r) -> absl::Status {
        if (program == nullptr) {
          ASSIGN_OR_RETURN(program, Program::Compile(sums.graph, sums.roots, strategy.device(r), variables));
        }
        return program->Run(FeedsOf(w));
      });
    };
    statuses[w] = step();
    if (w == 1) {
      given.wait();
      strategy.Fail("its input is broken");
      failed.count_down();
    } else {
      statuses[w].Update(step());
      given.count_down();
      failed.wait();
      gathered = strategy.GatherBytes("").status();
    }
  });
  for (const absl::Status& status : statuses) {
    INFO(status);
    CHECK(status.ok());
  }
  CHECK(absl::IsCancelled(gathered));
  CHECK_THAT(std::string(gathered.message()), Contains("worker 1 has failed: its input is broken"));
}

TEST_CASE("GPUs, or one several times, sum by copying to each other") {
  const SumOrder order = GENERATE(SumOrder::kReductionToOneDevice, SumOrder::kHierarchicalCopy);
  const auto devices = CudaDevices(3);
  if (devices.empty()) return;
  const std::vector<compute::Device*> pointers = Pointers(devices);
  auto streams = compute::FindDeviceKind(compute::kCudaKind)->make_peer_streams(pointers).value();
  const int n = static_cast<int>(devices.size());
  InProcessGroup group(n, MakeDeviceSummer(pointers, std::move(streams), order, /*chunk_elements=*/100000).value());
  CheckSums(group, pointers);
}

TEST_CASE("A pack is given away before what was built after its values") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {8}});
  const Value early = Exp(x), late = Tanh(Tanh(early));
  const auto strategy = Mirrored(2);
  compute::VariableStore variables(strategy->device(0));
  const auto program =
      Program::Compile(graph, {{x}, compute::AllReduce({late, early}, 2), {}}, strategy->device(0), variables).value();
  const std::string text = program->DebugString();
  CHECK(text.find("AllReduceStart") < text.find("Tanh"));
  CHECK(text.rfind("AllReduceStart") > text.rfind("Tanh"));
}

TEST_CASE("The orders of summation") {
  // Numbers whose sum depends on the order: 1, 2^-24 and 2^-24 make 1 in one order and 1 + 2^-23 in the other.
  const float tiny = 0x1p-24f;
  const auto sum_of = [&](SumOrder order, std::vector<float> values, int packs_before) {
    const int n = static_cast<int>(values.size());
    InProcessGroup group(n, MakeHostSummer(n, order));
    std::atomic<bool> all_ok{true};
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r) {
      threads.emplace_back([&, r] {
        float unused = 0;
        for (int i = 0; i < packs_before; ++i) all_ok = group.communicator(r).Start({{&unused, 1}}).ok() && all_ok;
        all_ok = group.communicator(r).Start({{&values[r], 1}}).ok() && all_ok;
        all_ok = group.communicator(r).Finish().ok() && all_ok;
      });
    }
    for (std::thread& t : threads) t.join();
    CHECK(all_ok);
    return values;
  };
  CHECK(sum_of(SumOrder::kReductionToOneDevice, {1, tiny, tiny}, 0) == std::vector<float>(3, 1));
  CHECK(sum_of(SumOrder::kReductionToOneDevice, {tiny, tiny, 1}, 0) == std::vector<float>(3, 1 + 2 * tiny));
  CHECK(sum_of(SumOrder::kReductionToOneDevice, {1, tiny, tiny, tiny}, 0) == std::vector<float>(4, 1 + 2 * tiny));
  // (1) + (tiny + tiny), also for three devices.
  CHECK(sum_of(SumOrder::kHierarchicalCopy, {1, tiny, tiny}, 0) == std::vector<float>(3, 1 + 2 * tiny));
  CHECK(sum_of(SumOrder::kHierarchicalCopy, {1, tiny, tiny, tiny}, 1) == std::vector<float>(4, 1 + 2 * tiny));
}

TEST_CASE("The error of one replica ends the others' waiting and comes out") {
  const auto strategy = Mirrored(3);
  const Sums sums(1);
  std::vector<Tensor> feeds = {Tensor(DType::kFloat32, {1000}), Tensor(DType::kFloat32, {300000})};
  std::vector<std::unique_ptr<compute::VariableStore>> variables;
  std::vector<std::unique_ptr<Program>> programs;
  for (int r = 0; r < 3; ++r) {
    variables.push_back(std::make_unique<compute::VariableStore>(strategy->device(r)));
    programs.push_back(Program::Compile(sums.graph, sums.roots, strategy->device(r), *variables[r]).value());
  }
  const absl::Status status =
      strategy->Run([&](int r) { return r == 1 ? absl::DataLossError("replica 1 is ill") : programs[r]->Run(feeds); });
  CHECK(status == absl::DataLossError("replica 1 is ill"));
  CHECK(strategy->Run([&](int r) { return programs[r]->Run(feeds); }).ok());
}

TEST_CASE("Of several errors the cause comes out, not that others were cancelled for it") {
  const auto strategy = Mirrored(2);
  const absl::Status status = strategy->Run([&](int r) {
    if (r == 1) return absl::CancelledError("another device has failed");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return absl::DataLossError("replica 0 is ill");
  });
  CHECK(status == absl::DataLossError("replica 0 is ill"));
}

TEST_CASE("One replica runs alone on its own thread, whatever became of the others") {
  const auto strategy = Mirrored(2);
  std::thread::id of_replica[2], alone;
  REQUIRE(strategy
              ->Run([&](int r) {
                of_replica[r] = std::this_thread::get_id();
                return absl::OkStatus();
              })
              .ok());
  const absl::Status status = strategy->RunAlone(1, [&] {
    alone = std::this_thread::get_id();
    return absl::DataLossError("found");
  });
  CHECK(status == absl::DataLossError("found"));
  CHECK(alone == of_replica[1]);
  CHECK(alone != of_replica[0]);
}

TEST_CASE("A device that never comes is named when the deadline has passed") {
  InProcessGroup group(3, MakeHostSummer(3, SumOrder::kReductionToOneDevice), std::chrono::seconds(1));
  float x = 1;
  REQUIRE(group.communicator(0).Start({{&x, 1}}).ok());
  REQUIRE(group.communicator(1).Start({{&x, 1}}).ok());
  const absl::Status status = group.communicator(0).Finish();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(std::string(status.message()),
             Contains("replica 0 has waited 1 s") && Contains("replica 2; --all_reduce_timeout_secs"));
}

// A scalar, a table and a row, updated by what the device was fed.
struct Trained {
  Graph graph;
  compute::GraphRoots roots;
  Value row;
  explicit Trained(bool adam) {
    const Value g = graph.Input("g", {DType::kFloat32, {}});
    std::vector<compute::VariableGradient> pairs;
    const auto add = [&](const char* name, const compute::Shape& shape) {
      const Value v = graph.Variable({name, {DType::kFloat32, shape}, compute::Initializer::Normal(1)});
      pairs.push_back({v, Mul(v, g)});
    };
    add("row", {40001});
    add("scalar", {});
    add("table", {5, 3});
    row = pairs[0].variable;
    const Value finite =
        compute::AllFinite({pairs[0].gradient, pairs[1].gradient, pairs[2].gradient}, {.barrier = true});
    if (adam) {
      // The table's rows 4, 0, 4, 2.
      pairs[2].gradient = compute::IndexedSlices(graph.Constant(Tensor::Of<int32_t>({4}, {4, 0, 4, 2})),
                                                 graph.Constant(compute::testing::RandomTensor({4, 3}, 1)), {5, 3});
    }
    const Value rate = graph.Constant(Tensor::Scalar(0.1f));
    roots = {{g}, {}, adam ? Adam(rate, pairs, {}) : Momentum(rate, pairs, {})};
    roots.targets.insert(roots.targets.begin(), finite.node());
    REQUIRE(graph.status().ok());
  }
};

TEST_CASE("Devices that share variables update them as one device does") {
  const int n = GENERATE(2, 3);
  const bool adam = GENERATE(false, true);
  CAPTURE(n, adam);
  const Trained trained(adam);
  // The variables after some steps on n devices.
  const auto train = [&](int n) {
    const auto strategy = Mirrored(n);
    std::vector<std::unique_ptr<compute::VariableStore>> stores;
    std::vector<std::unique_ptr<Program>> programs;
    for (int r = 0; r < n; ++r) {
      stores.push_back(std::make_unique<compute::VariableStore>(strategy->device(r), r > 0 ? stores[0].get() : nullptr,
                                                                compute::UpdatePart{r, n}));
      REQUIRE(stores[r]->Create(trained.graph, 7).ok());
      programs.push_back(Program::Compile(trained.graph, trained.roots, strategy->device(r), *stores[r]).value());
      CHECK(stores[r]->data("row") == stores[0]->data("row"));
      CHECK((stores[r]->data("scalar") == stores[0]->data("scalar")) == (r == 0));
    }
    for (int step = 0; step < 3; ++step) {
      REQUIRE(strategy->Run([&](int r) { return programs[r]->Run({Tensor::Scalar(0.5f)}); }).ok());
    }
    // One device whose gradients are not finite is enough to keep all of them from the update.
    const absl::Status status =
        strategy->Run([&](int r) { return programs[r]->Run({Tensor::Scalar(r == n - 1 ? NAN : 0.5f)}); });
    CHECK(absl::IsOutOfRange(status));
    std::vector<float> values;
    for (const compute::VariableSpec& spec : stores[0]->specs()) {
      const Tensor value = stores[0]->Read(spec.name).value();
      values.insert(values.end(), value.flat<float>().begin(), value.flat<float>().end());
      for (int r = 1; r < n; ++r) {
        const Tensor others = stores[r]->Read(spec.name).value();
        CHECK(std::memcmp(others.raw_data(), value.raw_data(), value.num_bytes()) == 0);
      }
    }
    return values;
  };
  CHECK(train(n) == train(1));
}

TEST_CASE("What would read shared variables while others update them is refused") {
  Trained trained(false);
  trained.roots.fetches = {Exp(trained.row)};
  const auto strategy = Mirrored(2);
  compute::VariableStore variables(strategy->device(0), nullptr, {0, 2});
  REQUIRE(variables.Create(trained.graph, 7).ok());
  const auto compile = [&] {
    return Program::Compile(trained.graph, trained.roots, strategy->device(0), variables).status();
  };
  CHECK(absl::IsInternal(compile()));
  CHECK_THAT(std::string(compile().message()), Contains("(Exp) uses variable row") && Contains("while they update it"));
  trained.roots.fetches.clear();
  CHECK(compile().ok());
  trained.roots.targets.erase(trained.roots.targets.begin());  // AllFinite
  CHECK_THAT(std::string(compile().message()), Contains("(ApplyMomentum)") && Contains("before they have met"));
}

TEST_CASE("A device that never answers is named when the deadline has passed, and a failure ends the wait") {
  InProcessGroup group(3, MakeHostSummer(3, SumOrder::kReductionToOneDevice), std::chrono::seconds(1));
  const absl::Status late = group.communicator(1).AllTrue(true).status();
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK_THAT(std::string(late.message()), Contains("replica 1 has waited 1 s for replica 0, 2 to be ready"));
  group.Abort(absl::InternalError("ill"));
  CHECK(absl::IsCancelled(group.communicator(0).AllTrue(true).status()));
  REQUIRE(group.Reset().ok());
  std::vector<std::thread> threads;
  std::array<bool, 3> answers{};
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] { answers[r] = group.communicator(r).AllTrue(true).value(); });
  }
  for (std::thread& t : threads) t.join();
  CHECK(answers == std::array<bool, 3>{true, true, true});
}

TEST_CASE("A kind of device brings its packs, and its own way to sum, which it uses unless told otherwise") {
  static int num_groups = 0;
  const auto make_group = [](absl::Span<compute::Device* const> devices, std::chrono::seconds deadline,
                             const std::optional<compute::WorldRanks>&) {
    ++num_groups;
    const int n = static_cast<int>(devices.size());
    return absl::StatusOr<std::unique_ptr<compute::CommunicatorGroup>>(
        std::make_unique<InProcessGroup>(n, MakeHostSummer(n, SumOrder::kHierarchicalCopy), deadline));
  };
  compute::RegisterDeviceKind({.name = "own",
                               .make_device = compute::FindDeviceKind("cpu")->make_device,
                               .all_reduce = compute::AllReduceAlgorithm{"by_hand", make_group},
                               .pack_sizes = compute::PackSizes{.most_bytes = 100, .last_bytes = 10}});
  const auto strategy = Strategy::Create({.device_kind = "own", .num_replicas = 2});
  REQUIRE(strategy.ok());
  CHECK(num_groups == 1);
  REQUIRE((*strategy)->pack_sizes());
  CHECK((*strategy)->pack_sizes()->most_bytes == 100);
  CHECK(!Mirrored(2)->pack_sizes());
  REQUIRE(Strategy::Create({.device_kind = "own", .num_replicas = 2, .all_reduce_alg = "by_hand"}).ok());
  CHECK(num_groups == 2);
  REQUIRE(Strategy::Create({.device_kind = "own", .num_replicas = 2, .all_reduce_alg = "hierarchical_copy"}).ok());
  CHECK(num_groups == 2);
  const absl::Status nccl =
      Strategy::Create({.device_kind = "own", .num_replicas = 2, .all_reduce_alg = "nccl"}).status();
  CHECK(absl::IsInvalidArgument(nccl));
  CHECK_THAT(std::string(nccl.message()),
             Contains("is not for own devices; use by_hand, hierarchical_copy or reduction_to_one_device"));
}

TEST_CASE("Workers that cannot sum as they are told are refused") {
  const auto exchanges = MakeMemoryExchanges(2);
  const auto refusal = [&](const std::string& kind, CollectiveCommunication communication,
                           std::optional<std::string> alg = std::nullopt) {
    const Workers workers = {exchanges[0].get(), {{0, 1}, {1, 2}}, communication};
    const absl::Status status =
        Strategy::Create({.device_kind = kind, .num_replicas = 2, .workers = workers, .all_reduce_alg = std::move(alg)})
            .status();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  CHECK_THAT(
      refusal("cpu", CollectiveCommunication::kNccl),
      Contains("--collective_communication=nccl sums between GPUs, and this run trains on cpu devices; use auto"));
  CHECK_THAT(refusal("cpu", CollectiveCommunication::kAuto, "hierarchical_copy"),
             Contains("--all_reduce_alg=hierarchical_copy is not for several workers; use reduction_to_one_device"));
  if (CudaDevices(0).empty()) return;
  CHECK_THAT(refusal(compute::kCudaKind, CollectiveCommunication::kRing),
             Contains("--collective_communication=ring sums in the memory of the host"));
  CHECK_THAT(refusal(compute::kCudaKind, CollectiveCommunication::kAuto, "hierarchical_copy"),
             Contains("--all_reduce_alg=hierarchical_copy is not for several workers; use nccl"));
}

TEST_CASE("Each replica has a device of its own") {
  const auto message = [](const StrategyOptions& options) {
    const absl::Status status = Strategy::Create(options).status();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  for (const int n : {0, -1}) {
    CHECK_THAT(message({.num_replicas = n}), Contains("Must specify at least one device: "));
  }
  CHECK(message({.num_replicas = 2, .device_indices = {1, 1}}) ==
        "No duplicates allowed in `devices` argument: device_indices are 1, 1");
  CHECK(message({.num_replicas = 2, .device_indices = {0}}) ==
        "device_indices are 0, and this process has 2 replicas; give as many");
  CHECK(Strategy::Create({.num_replicas = 2, .device_indices = {1, 0}}).ok());
}

TEST_CASE("Bad choices") {
  CHECK(absl::IsInvalidArgument(Strategy::Create({.num_replicas = 2, .all_reduce_alg = "nccl"}).status()));
  const absl::Status ring = Strategy::Create({.num_replicas = 2, .all_reduce_alg = "ring"}).status();
  CHECK(absl::IsInvalidArgument(ring));
  CHECK_THAT(
      std::string(ring.message()),
      Contains("--all_reduce_alg=ring is not for cpu devices; use hierarchical_copy or reduction_to_one_device"));
  CHECK(absl::IsNotFound(Strategy::Create({.device_kind = "abacus"}).status()));
  CHECK(Mirrored(2)->name() == "mirrored");
  CHECK(Mirrored(1)->name() == "one_device");
  CHECK_THAT(Mirrored(2)->Description(), Contains("cpu:0 (1 thread") && Contains("cpu:1 (1 thread"));
}

}  // namespace
}  // namespace official::distribute
