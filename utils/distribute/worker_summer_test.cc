// Sums over the devices of several workers, which are threads here, against TreeSum.

#include "utils/distribute/worker_summer.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <thread>

#include "utils/compute/core/batch_parts.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/ordered_sum.h"
#include "utils/distribute/worker_splits.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using compute::Share;
using Buffer = compute::Communicator::Buffer;
using Splits = std::vector<std::vector<Share>>;

// Packs of a step, as the elements of their buffers.
const std::vector<std::vector<int64_t>> kPacks = {{1}, {0}, {15, 0, 16}, {3, 1000, 7}};
constexpr int kSteps = 3;

float Element(int replica, int step, int64_t i) {
  return std::sin(static_cast<float>(1 + replica + 10 * step) * static_cast<float>(1 + i)) * std::exp2(replica - 4.0f);
}

// What a device's packs hold, one after the other.
std::vector<float> Packs(int replica, int step) {
  std::vector<float> all;
  for (const auto& pack : kPacks) {
    for (const int64_t elements : pack) {
      for (int64_t i = 0; i < elements; ++i) all.push_back(Element(replica, step, static_cast<int64_t>(all.size())));
    }
  }
  return all;
}

absl::Status SumPacks(compute::Communicator& communicator, std::vector<float>& numbers) {
  float* data = numbers.data();
  for (const auto& pack : kPacks) {
    std::vector<Buffer> buffers;
    for (const int64_t elements : pack) {
      buffers.push_back({data, elements});
      data += elements;
    }
    if (const absl::Status status = communicator.Start(buffers); !status.ok()) return status;
  }
  return communicator.Finish();
}

// The group of each worker.
std::vector<std::unique_ptr<InProcessGroup>> GroupsOf(const std::vector<Share>& split,
                                                      const std::vector<std::unique_ptr<Exchange>>& exchanges,
                                                      std::chrono::seconds deadline = std::chrono::minutes(1),
                                                      WorkerSumOrder order = WorkerSumOrder::kOrdered) {
  std::vector<std::unique_ptr<InProcessGroup>> groups;
  for (size_t w = 0; w < split.size(); ++w) {
    auto sum = MakeWorkerSum(order, split, *exchanges[w], deadline);
    groups.push_back(std::make_unique<InProcessGroup>(
        static_cast<int>(split[w].size()), std::make_unique<WorkerSummer>(std::move(sum), *exchanges[w]), deadline));
  }
  return groups;
}

// Calls f(worker, replica) for all replicas, each in a thread of its own.
template <typename F>
void OnAll(const std::vector<Share>& split, const F& f) {
  std::vector<std::thread> threads;
  for (size_t w = 0; w < split.size(); ++w) {
    for (int64_t r = split[w].begin; r < split[w].end; ++r) {
      threads.emplace_back([&f, w, r] { f(static_cast<int>(w), static_cast<int>(r)); });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("The covering subtrees of any split join to the one tree") {
  for (int n = 1; n <= 32; ++n) {
    for (int workers = 1; workers <= std::min(n, 8); ++workers) {
      std::vector<Share> nodes;
      for (int w = 0; w < workers; ++w) {
        const std::vector<Share> own = CoverNodes(n, compute::ShareOf(n, w, workers));
        CHECK(own.size() <= 4);
        nodes.insert(nodes.end(), own.begin(), own.end());
      }
      int64_t next = 0;  // the nodes are all replicas, in order
      for (const Share& node : nodes) {
        CHECK(node.begin == next);
        next = node.end;
      }
      CHECK(next == n);
      std::vector<std::string> sums(n);
      for (int r = 0; r < n; ++r) sums[r] = std::to_string(r);
      const auto add = [&](int a, int b) { sums[a] = "(" + sums[a] + "+" + sums[b] + ")"; };
      for (const Share& node : nodes) JoinReplicas(node, add);
      JoinNodes(n, nodes, add);
      std::vector<std::string> whole(n);
      for (int r = 0; r < n; ++r) whole[r] = std::to_string(r);
      std::swap(whole, sums);
      JoinReplicas({0, n}, add);
      CHECK(sums[0] == whole[0]);
    }
  }
}

TEST_CASE("Segments are whole lines and together all elements") {
  for (const int64_t elements : {0, 1, 15, 16, 17, 1000}) {
    int64_t next = 0;
    for (int w = 0; w < 3; ++w) {
      const Share segment = SegmentOf(elements, w, 3);
      CHECK(segment.begin == next);
      CHECK((segment.begin % 16 == 0 || segment.size() == 0));
      next = segment.end;
    }
    CHECK(next == elements);
  }
}

TEST_CASE("However workers hold the replicas, sums have the bits of TreeSum") {
  const int n = GENERATE(2, 3, 4, 5, 6, 7, 8);
  for (const std::vector<Share>& split : AllSplits(n, 4)) {
    const auto exchanges = MakeMemoryExchanges(static_cast<int>(split.size()));
    const auto groups = GroupsOf(split, exchanges);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<std::vector<float>> numbers;
      for (int r = 0; r < n; ++r) numbers.push_back(Packs(r, step));
      std::vector<float> expected;
      for (size_t i = 0; i < numbers[0].size(); ++i) {
        expected.push_back(compute::TreeSum(0, n, [&](int64_t r) { return numbers[r][i]; }));
      }
      std::vector<absl::Status> statuses(n);
      OnAll(split, [&](int w, int r) {
        const int rank = r - static_cast<int>(split[w].begin);
        statuses[r] = SumPacks(groups[w]->communicator(rank), numbers[r]);
      });
      for (int r = 0; r < n; ++r) {
        INFO(statuses[r]);
        REQUIRE(statuses[r].ok());
        REQUIRE(std::memcmp(numbers[r].data(), expected.data(), expected.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("The sums of a ring are the same everywhere, and those of doubles but for rounding") {
  for (const std::vector<Share>& split :
       Splits{{{0, 1}, {1, 2}}, {{0, 2}, {2, 3}}, {{0, 1}, {1, 4}, {4, 6}}, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}}) {
    const auto n = static_cast<int>(split.back().end);
    const auto exchanges = MakeMemoryExchanges(static_cast<int>(split.size()));
    const auto groups = GroupsOf(split, exchanges, std::chrono::minutes(1), WorkerSumOrder::kRing);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<std::vector<float>> numbers;
      for (int r = 0; r < n; ++r) numbers.push_back(Packs(r, step));
      const std::vector<std::vector<float>> given = numbers;
      std::vector<absl::Status> statuses(n);
      OnAll(split, [&](int w, int r) {
        const int rank = r - static_cast<int>(split[w].begin);
        statuses[r] = SumPacks(groups[w]->communicator(rank), numbers[r]);
      });
      CHECK(statuses == std::vector<absl::Status>(n));
      for (size_t i = 0; i < given[0].size(); ++i) {
        double sum = 0, magnitude = 0;
        for (int r = 0; r < n; ++r) sum += given[r][i], magnitude += std::abs(given[r][i]);
        REQUIRE(std::abs(numbers[0][i] - sum) <= magnitude * n * 0x1p-24);
      }
      for (int r = 1; r < n; ++r) REQUIRE(numbers[r] == numbers[0]);
    }
  }
}

// Notes the packs that it gets.
class NotingSummer : public PackSummer {
 public:
  explicit NotingSummer(std::vector<int>& begun) : begun_(begun) {}
  void Begin(int pack, absl::Span<const std::vector<Buffer>>) override { begun_.push_back(pack); }
  int64_t Share(int64_t left) const override { return left; }
  absl::Status Sum(int, absl::Span<const std::vector<Buffer>>, int64_t, int64_t) override { return absl::OkStatus(); }

 private:
  std::vector<int>& begun_;
};

TEST_CASE("A pack without elements is not summed, since nobody waits for it and its memory is used again") {
  std::vector<int> begun;
  InProcessGroup group(1, std::make_unique<NotingSummer>(begun));
  for (int step = 0; step < 2; ++step) {
    std::vector<float> numbers = Packs(0, step);
    REQUIRE(SumPacks(group.communicator(0), numbers).ok());
  }
  CHECK(begun == std::vector<int>{0, 2, 3, 0, 2, 3});
}

TEST_CASE("A worker that fails ends the sums of all") {
  const std::vector<Share> split = {{0, 1}, {1, 3}, {3, 4}};
  const auto exchanges = MakeMemoryExchanges(3);
  const auto groups = GroupsOf(split, exchanges);
  std::vector<absl::Status> statuses(4);
  OnAll(split, [&](int w, int r) {
    if (w == 1) return groups[1]->Abort(absl::InternalError("ill"));
    std::vector<float> numbers = Packs(r, 0);
    statuses[r] = SumPacks(groups[w]->communicator(0), numbers);
  });
  for (const int r : {0, 3}) {
    CHECK(absl::IsCancelled(statuses[r]));
    CHECK_THAT(std::string(statuses[r].message()), Contains("worker 1 has failed"));
  }
  CHECK(absl::IsFailedPrecondition(groups[0]->Reset()));
}

TEST_CASE("A worker that sends nothing is named at the deadline") {
  const std::vector<Share> split = {{0, 1}, {1, 2}};
  const auto exchanges = MakeMemoryExchanges(2);
  const auto groups = GroupsOf(split, exchanges, std::chrono::seconds(1));
  std::vector<float> numbers = Packs(0, 0);
  const absl::Status status = SumPacks(groups[0]->communicator(0), numbers);
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(std::string(status.message()), Contains("waited 1 s for worker 1"));
}

TEST_CASE("A worker that sends another number of elements is named") {
  const std::vector<Share> split = {{0, 1}, {1, 2}};
  const auto exchanges = MakeMemoryExchanges(2);
  const auto groups = GroupsOf(split, exchanges);
  for (int i = 0; i < 2; ++i) REQUIRE(exchanges[1]->Send(0, Exchange::Channel::kSums, "six---").ok());
  std::vector<float> numbers = Packs(0, 0);
  const absl::Status status = SumPacks(groups[0]->communicator(0), numbers);
  CHECK(absl::IsInternal(status));
  CHECK_THAT(std::string(status.message()), Contains("worker 1 has sent 6 bytes of a sum, not 4;"));
}

TEST_CASE("What is gathered is by worker") {
  const auto exchanges = MakeMemoryExchanges(3);
  std::vector<std::vector<std::string>> gathered(3);
  OnAll({{0, 1}, {1, 2}, {2, 3}}, [&](int w, int) {
    for (int i = 0; i < 2; ++i) {  // the second is not mixed up with the first
      gathered[w] = Gather(*exchanges[w], std::to_string(10 * i + w), std::chrono::minutes(1)).value();
    }
  });
  for (const auto& of_worker : gathered) CHECK(of_worker == std::vector<std::string>{"10", "11", "12"});
}

}  // namespace
}  // namespace official::distribute
