#include "utils/distribute/device_summer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <numeric>
#include <random>

#include "utils/compute/core/status.h"
#include "utils/compute/testing/op_test.h"

namespace official::distribute {
namespace {

using Buffer = compute::Communicator::Buffer;

// Streams that are given work and do it later, in any order that they may: whoever starts too early, because the host
// forgot to order him behind another, reads or overwrites wrong numbers in some of the orders.
class LateStreams : public compute::PeerStreams {
 public:
  explicit LateStreams(int num_devices) : num_devices_(num_devices), streams_(2 * num_devices), marks_(num_devices) {}

  // What a device computes.
  void Compute(int rank, std::function<void()> work) { Give(num_devices_ + rank, {std::move(work)}).IgnoreError(); }
  void Settle(std::mt19937& random) {
    for (;;) {
      std::vector<Stream*> ready;
      bool idle = true;
      for (Stream& s : streams_) {
        if (s.queue.empty()) continue;
        idle = false;
        const Task& next = s.queue.front();
        if (next.stream < 0 || streams_[next.stream].done >= next.until) ready.push_back(&s);
      }
      if (idle) return;
      REQUIRE(!ready.empty());
      Stream& chosen = *ready[random() % ready.size()];
      if (chosen.queue.front().work) chosen.queue.front().work();
      chosen.queue.pop_front();
      ++chosen.done;
    }
  }

  absl::Status Mark(int rank, int mark) override {
    marks_[rank].resize(std::max<size_t>(marks_[rank].size(), mark + 1));
    marks_[rank][mark] = streams_[num_devices_ + rank].given;
    return absl::OkStatus();
  }
  absl::Status WaitForMark(int rank, int mark) override {
    return Give(rank, {nullptr, num_devices_ + rank, marks_[rank][mark]});
  }
  absl::Status WaitForPeer(int rank, int other) override { return Give(rank, {nullptr, other, streams_[other].given}); }
  absl::Status Copy(int rank, float* to, int, const float* from, int64_t elements) override {
    return Give(rank, {[=] { std::memcpy(to, from, elements * sizeof(float)); }});
  }
  absl::Status Add(int rank, float* to, const float* from, int64_t elements) override {
    return Give(rank, {[=] {
                  for (int64_t i = 0; i < elements; ++i) to[i] += from[i];
                }});
  }
  absl::Status Join(int rank) override {
    for (int other = 0; other < num_devices_; ++other) {
      RETURN_IF_ERROR(Give(num_devices_ + rank, {nullptr, other, streams_[other].given}));
    }
    return absl::OkStatus();
  }

 private:
  struct Task {
    std::function<void()> work;
    int stream = -1;  // or: wait for this stream
    int64_t until = 0;
  };
  struct Stream {
    std::deque<Task> queue;
    int64_t given = 0, done = 0;
  };
  absl::Status Give(int stream, Task task) {
    streams_[stream].queue.push_back(std::move(task));
    ++streams_[stream].given;
    return absl::OkStatus();
  }

  const int num_devices_;
  std::vector<Stream> streams_;  // of the exchange, then of computing
  std::vector<std::vector<int64_t>> marks_;
};

constexpr int kPacks = 3, kSteps = 3;
const std::vector<int64_t> kSizes[kPacks] = {{5, 1, 0, 20}, {3}, {7, 7, 16}};

// Random numbers of a device's step, those of all its packs one after the other, or the room for them.
std::vector<float> Numbers(int device, int step) {
  const compute::Tensor t = compute::testing::RandomTensor({59}, 100 * device + step);
  return {t.data<float>(), t.data<float>() + 59};
}
// The buffers of a pack among such numbers.
std::vector<Buffer> Pack(std::vector<float>& numbers, int pack) {
  float* next = numbers.data();
  std::vector<Buffer> buffers;
  for (int p = 0; p <= pack; ++p) {
    buffers.clear();
    for (const int64_t n : kSizes[p]) {
      buffers.push_back({next, n});
      next += n;
    }
  }
  return buffers;
}

// Gives all packs of all devices, in an order of the devices that `random` chooses, and takes the sums.
void RunStep(InProcessGroup& group, std::vector<std::vector<float>>& numbers, std::mt19937& random,
             const std::function<void(int)>& before, const std::function<void(int)>& after) {
  std::vector<int> devices(numbers.size());
  std::iota(devices.begin(), devices.end(), 0);
  std::shuffle(devices.begin(), devices.end(), random);
  for (const int d : devices) {
    before(d);
    for (int pack = 0; pack < kPacks; ++pack) REQUIRE(group.communicator(d).Start(Pack(numbers[d], pack)).ok());
  }
  std::shuffle(devices.begin(), devices.end(), random);
  for (const int d : devices) {
    REQUIRE(group.communicator(d).Finish().ok());
    after(d);
  }
}

TEST_CASE("Devices that work while the host does something else sum to the bits of the host's sums") {
  const int n = GENERATE(2, 3, 4, 5, 8);
  const SumOrder order = GENERATE(SumOrder::kReductionToOneDevice, SumOrder::kHierarchicalCopy);
  const int seed = GENERATE(range(0, 20));
  CAPTURE(n, order, seed);
  std::mt19937 random(seed);

  std::vector<std::vector<std::vector<float>>> wanted(kSteps);
  InProcessGroup on_host(n, MakeHostSummer(n, order));
  for (int step = 0; step < kSteps; ++step) {
    for (int d = 0; d < n; ++d) wanted[step].push_back(Numbers(d, step));
    RunStep(
        on_host, wanted[step], random, [](int) {}, [](int) {});
  }

  std::vector<std::unique_ptr<compute::Device>> devices;
  std::vector<compute::Device*> pointers;
  for (int d = 0; d < n; ++d) {
    devices.push_back(compute::MakeDevice("cpu", {.index = d}).value());
    pointers.push_back(devices.back().get());
  }
  auto owned = std::make_unique<LateStreams>(n);
  LateStreams& streams = *owned;
  InProcessGroup group(n, MakeDeviceSummer(pointers, std::move(owned), order, /*chunk_elements=*/8).value());
  // The same memory in all steps; wrong after each.
  std::vector<std::vector<float>> gradients(n, std::vector<float>(59, NAN));
  std::vector<std::vector<std::vector<float>>> results(kSteps, gradients);
  for (int step = 0; step < kSteps; ++step) {
    RunStep(
        group, gradients, random,
        [&, step](int d) {
          streams.Compute(d, [&, step, d] {
            const std::vector<float> numbers = Numbers(d, step);  // the memory stays where it is
            std::copy(numbers.begin(), numbers.end(), gradients[d].begin());
          });
        },
        [&, step](int d) {
          streams.Compute(d, [&, step, d] {
            results[step][d] = gradients[d];
            std::fill(gradients[d].begin(), gradients[d].end(), NAN);
          });
        });
  }
  streams.Settle(random);
  for (int step = 0; step < kSteps; ++step) {
    for (int d = 0; d < n; ++d) CHECK(results[step][d] == wanted[step][d]);
  }
}

TEST_CASE("Packs take turns in the devices on which they are summed") {
  std::vector<int> sums_on(4);
  for (int pack = 0; pack < 4; ++pack) {
    const SumPlan plan = PlanSum(SumOrder::kHierarchicalCopy, 4, pack);
    for (const SumPlan::Step& step : plan.steps) {
      if (step.adds) ++sums_on[plan.DeviceOf(step.to)];
      if (step.adds) CHECK(plan.DeviceOf(step.to) == plan.DeviceOf(step.from));
    }
    // Between the halves go one sum and the total.
    CHECK(std::count_if(plan.steps.begin(), plan.steps.end(), [&](const SumPlan::Step& step) {
            return (plan.DeviceOf(step.to) < 2) != (plan.DeviceOf(step.from) < 2);
          }) == 2);
  }
  CHECK(sums_on == std::vector<int>{3, 3, 3, 3});
}

}  // namespace
}  // namespace official::distribute
