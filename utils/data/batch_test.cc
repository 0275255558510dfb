#include "utils/data/batch.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <thread>

#include "utils/data/every_nth.h"
#include "utils/data/first_batches.h"
#include "utils/data/worker_pool.h"
#include "utils/logs/captured_log.h"

// Counts allocations, to show that none are made per batch. The address sanitizer has an operator new of its own.
#ifndef __SANITIZE_ADDRESS__
namespace {
std::atomic<int64_t> allocations{0};
}  // namespace
void* operator new(size_t size) {
  ++allocations;
  if (void* data = std::malloc(size)) return data;
  throw std::bad_alloc();
}
// Not inlined: the compiler would see free() of what new has made.
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { std::free(data); }
#endif

namespace official::data {
namespace {

using Catch::Contains;
using compute::DType;
using compute::Tensor;

// Examples 0, 1, ..., n - 1: feature "x" [2] holds {i, 0}, the label i.
DatasetPtr Numbers(int64_t n) {
  Tensor x(DType::kFloat32, {n, 2}), labels(DType::kInt32, {n});
  for (int64_t i = 0; i < n; ++i) {
    x.data<float>()[2 * i] = i;
    labels.data<int32_t>()[i] = i;
  }
  return TensorSlices({{"x", x}}, {{"", labels}});
}

// Shuffled, with a random number in place of the 0, slower for some examples so that threads finish out of order.
DatasetPtr Augmented(int64_t n) {
  const DatasetPtr numbers = Numbers(n);
  return Map(Shuffle(numbers, /*seed=*/1), numbers->spec(), /*seed=*/1,
             [](const Example& in, Random& random, const Example& out) {
               if (in.labels[0].scalar<int32_t>() % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
               out.features[0].data<float>()[0] = in.features[0].data<float>()[0];
               out.features[0].data<float>()[1] = random.Uniform();
               *out.labels[0].data<int32_t>() = in.labels[0].scalar<int32_t>();
               return absl::OkStatus();
             });
}

// Fails at example `bad`.
DatasetPtr FailingAt(int64_t n, int64_t bad) {
  const DatasetPtr numbers = Numbers(n);
  return Map(numbers, numbers->spec(), 1, [bad](const Example& in, Random&, const Example& out) -> absl::Status {
    const int32_t i = in.labels[0].scalar<int32_t>();
    if (i >= bad) return absl::DataLossError(std::to_string(i) + " is bad");
    *out.labels[0].data<int32_t>() = i;
    return absl::OkStatus();
  });
}

BatchSourcePtr Open(DatasetPtr dataset, const BatchOptions& options, int depth = 0) {
  return Prefetch(Batches(std::move(dataset), options).value(), depth);
}

// Everything one stream gives, one entry per batch.
struct Seen {
  std::vector<float> x;
  std::vector<int32_t> labels;
  Position first, next;
  bool operator==(const Seen&) const = default;
};
std::vector<Seen> ReadAll(BatchSource& source) {
  std::vector<Seen> all;
  while (std::optional<Batch> batch = source.Next().value()) {
    CHECK(batch->labels[0].shape().dim(0) == batch->num_examples);
    CHECK(batch->features[0].shape() == compute::Shape({batch->num_examples, 2}));
    const auto x = batch->features[0].flat<float>();
    const auto labels = batch->labels[0].flat<int32_t>();
    all.push_back({{x.begin(), x.end()}, {labels.begin(), labels.end()}, batch->first, batch->next});
  }
  return all;
}
std::vector<std::vector<int32_t>> Labels(const std::vector<Seen>& all) {
  std::vector<std::vector<int32_t>> labels;
  for (const Seen& seen : all) labels.push_back(seen.labels);
  return labels;
}
using LabelLists = std::vector<std::vector<int32_t>>;

TEST_CASE("A source knows how many examples an epoch has, read ahead or not") {
  BatchSourcePtr source = Batches(Numbers(7), {.batch_size = 2}).value();
  CHECK(source->num_examples() == 7);
  CHECK(Prefetch(std::move(source), 2)->num_examples() == 7);
}

TEST_CASE("Every epoch ends with a partial batch") {
  const BatchSourcePtr source = Open(Numbers(5), {.batch_size = 2, .end_epoch = 2});
  const std::vector<Seen> all = ReadAll(*source);
  CHECK(Labels(all) == LabelLists{{0, 1}, {2, 3}, {4}, {0, 1}, {2, 3}, {4}});
  CHECK(all[2].first == Position{0, 4});
  CHECK(all[2].next == Position{1, 0});
  CHECK(all[5].next == Position{2, 0});
  CHECK_FALSE(source->Next().value().has_value());
}

TEST_CASE("Batches across epochs are full but for the last") {
  const std::vector<Seen> all = ReadAll(*Open(Numbers(3), {.batch_size = 4, .end_epoch = 3, .across_epochs = true}));
  CHECK(Labels(all) == LabelLists{{0, 1, 2, 0}, {1, 2, 0, 1}, {2}});
  CHECK(all[0].next == Position{1, 1});
  CHECK(all[1].next == Position{2, 2});
  CHECK(all[2].next == Position{3, 0});
}

TEST_CASE("A batch size above the number of examples gives the whole epoch and takes no more memory than that") {
  const std::vector<Seen> all = ReadAll(*Open(Numbers(3), {.batch_size = int64_t{1} << 60, .end_epoch = 2}));
  CHECK(Labels(all) == LabelLists{{0, 1, 2}, {0, 1, 2}});
  const std::vector<Seen> across =
      ReadAll(*Open(Numbers(3), {.batch_size = int64_t{1} << 60, .end_epoch = 2, .across_epochs = true}));
  CHECK(Labels(across) == LabelLists{{0, 1, 2, 0, 1, 2}});
}

TEST_CASE("An endless stream continues") {
  const BatchSourcePtr source = Open(Numbers(3), {.batch_size = 2, .end_epoch = kEndless, .across_epochs = true});
  for (int i = 0; i < 100; ++i) CHECK(source->Next().value()->num_examples == 2);
}

TEST_CASE("The stream does not depend on threads or read-ahead") {
  const bool across_epochs = GENERATE(false, true);
  const BatchOptions options = {.batch_size = 16, .end_epoch = 3, .across_epochs = across_epochs};
  const std::vector<Seen> expected = ReadAll(*Open(Augmented(101), options));
  CHECK(expected.size() == (across_epochs ? 19 : 21));
  for (int num_threads : {1, 2, 8}) {
    for (int depth : {0, 1, 3}) {
      BatchOptions with_threads = options;
      with_threads.num_threads = num_threads;
      CHECK(ReadAll(*Open(Augmented(101), with_threads, depth)) == expected);
    }
  }
}

TEST_CASE("A stream opened at any batch's next position continues exactly") {
  const bool across_epochs = GENERATE(false, true);
  BatchOptions options = {.batch_size = 16, .end_epoch = 3, .across_epochs = across_epochs, .num_threads = 2};
  const std::vector<Seen> all = ReadAll(*Open(Augmented(101), options));
  for (size_t i = 0; i < all.size(); ++i) {
    options.start = all[i].next;
    CHECK(ReadAll(*Open(Augmented(101), options, /*depth=*/2)) == std::vector<Seen>(all.begin() + i + 1, all.end()));
  }
}

TEST_CASE("A stream may continue with another batch size") {
  const std::vector<Seen> all = ReadAll(*Open(Numbers(10), {.batch_size = 4, .start = {0, 3}}));
  CHECK(Labels(all) == LabelLists{{3, 4, 5, 6}, {7, 8, 9}});
}

TEST_CASE("Workers read the rows of their replicas, each row one of them") {
  // Batches of 10, 10 and 9 in 2 micro-batches for 5 replicas, of which two workers hold 2 and 3.
  const compute::Share held[] = {{0, 2}, {2, 5}};
  std::vector<int> reads(29), places;
  for (const compute::Share& replicas : held) {
    const DatasetPtr numbers = Numbers(29);
    const DatasetPtr counted =
        Map(numbers, numbers->spec(), /*seed=*/1, [&](const Example& in, Random&, const Example& out) {
          const int32_t number = in.labels[0].scalar<int32_t>();
          ++reads[number];
          *out.labels[0].data<int32_t>() = number;
          return absl::OkStatus();
        });
    const HeldRows rows{.replicas = replicas, .num_replicas = 5, .micro_batches = 2};
    const BatchSourcePtr source = Open(counted, {.batch_size = 10, .rows = rows});
    for (int64_t first = 0; const auto batch = source->Next().value(); first += 10) {
      CHECK(batch->num_examples == std::min<int64_t>(10, 29 - first));
      for (int part = 0; part < 10; ++part) {
        if (part % 5 < replicas.begin || part % 5 >= replicas.end) continue;
        const compute::Share share = compute::ShareOf(batch->num_examples, part, 10);
        for (int64_t row = share.begin; row < share.end; ++row) {
          CHECK(batch->labels[0].data<int32_t>()[row] == first + row);
          places.push_back(static_cast<int>(first + row));
        }
      }
    }
  }
  CHECK(reads == std::vector<int>(29, 1));
  CHECK(places.size() == 29);
}

TEST_CASE("Where batches are dealt out, a worker reads the examples of its own only") {
  const int across_epochs = GENERATE(0, 1);
  const HeldRows rows{.of_batches = 3, .batch = 1};
  BatchOptions options = {.batch_size = 4, .start = {0, 4}, .end_epoch = 2, .across_epochs = across_epochs == 1};
  const std::vector<Seen> all = ReadAll(*Open(Numbers(10), options));
  std::vector<int> reads;
  const DatasetPtr numbers = Numbers(10);
  const DatasetPtr counted =
      Map(numbers, numbers->spec(), /*seed=*/1, [&](const Example& in, Random&, const Example& out) {
        reads.push_back(in.labels[0].scalar<int32_t>());
        *out.labels[0].data<int32_t>() = reads.back();
        return absl::OkStatus();
      });
  options.rows = rows;
  const std::vector<Seen> dealt = ReadAll(*Open(counted, options));
  REQUIRE(dealt.size() == all.size());
  std::vector<int> wanted;
  for (size_t b = 0; b < all.size(); ++b) {
    CHECK(dealt[b].next == all[b].next);
    if (b % 3 != 1) continue;
    CHECK(dealt[b].labels == all[b].labels);
    wanted.insert(wanted.end(), all[b].labels.begin(), all[b].labels.end());
  }
  CHECK(reads == wanted);
}

TEST_CASE("The end of an epoch and the beginning of the next are one position") {
  CHECK(Labels(ReadAll(*Open(Numbers(3), {.batch_size = 2, .start = {0, 3}, .end_epoch = 2}))) ==
        LabelLists{{0, 1}, {2}});
  CHECK(ReadAll(*Open(Numbers(3), {.batch_size = 2, .start = {2, 0}, .end_epoch = 2})).empty());
  CHECK(ReadAll(*Open(Numbers(3), {.batch_size = 2, .start = {1, 3}, .end_epoch = 2})).empty());
}

TEST_CASE("Bad options and empty data sets are refused") {
  CHECK_THAT(std::string(Batches(Numbers(3), {.batch_size = 0}).status().message()), Contains("found 0"));
  CHECK(absl::IsInvalidArgument(Batches(Numbers(3), {.batch_size = -5}).status()));
  CHECK(absl::IsDataLoss(Batches(Numbers(0), {.batch_size = 1, .end_epoch = kEndless}).status()));
  const absl::Status beyond = Batches(Numbers(3), {.start = {2, 4}}).status();
  CHECK(absl::IsDataLoss(beyond));
  CHECK_THAT(std::string(beyond.message()), Contains("epoch 2, example 4") && Contains("3 examples"));
}

TEST_CASE("An error comes at its own place and stays") {
  const int num_threads = GENERATE(1, 2, 8);
  const int depth = GENERATE(0, 1, 4);
  const BatchSourcePtr source = Open(FailingAt(20, /*bad=*/9), {.batch_size = 4, .num_threads = num_threads}, depth);
  CHECK(source->Next().value()->first == Position{0, 0});
  CHECK(source->Next().value()->first == Position{0, 4});
  // 9, 10 and 11 fail in this batch; the first one is told.
  CHECK(source->Next().status() == absl::DataLossError("9 is bad"));
  CHECK(source->Next().status() == absl::DataLossError("9 is bad"));
}

TEST_CASE("Destroying a prefetching source stops its thread, wherever it is") {
  for (int taken : {0, 1, 5}) {
    const BatchSourcePtr source = Open(Augmented(1000), {.batch_size = 4, .end_epoch = kEndless, .num_threads = 2}, 3);
    for (int i = 0; i < taken; ++i) REQUIRE(source->Next().ok());
  }
}

TEST_CASE("Whether there is a batch can be asked, and a read that hangs is abandoned with its thread") {
  std::promise<void> disk;
  const auto alive = std::make_shared<int>();
  const DatasetPtr numbers = Numbers(8);
  DatasetPtr hanging = Map(numbers, numbers->spec(), /*seed=*/1,
                           [back = disk.get_future().share(), alive](const Example& in, Random&, const Example&) {
                             if (in.labels[0].scalar<int32_t>() == 4) back.wait();
                             return absl::OkStatus();
                           });
  BatchSourcePtr source = Open(std::move(hanging), {.batch_size = 4}, /*depth=*/2);
  CHECK(source->WaitUntilReady(std::chrono::seconds(60)));
  REQUIRE(source->Next().value()->num_examples == 4);
  CHECK_FALSE(source->WaitUntilReady(std::chrono::milliseconds(50)));
  source.reset();
  CHECK(alive.use_count() == 2);
  disk.set_value();
  while (alive.use_count() > 1) std::this_thread::yield();
}

TEST_CASE("Destroying a source ends the batch that it makes after the present example, however many are left") {
  const auto begun = std::make_shared<std::atomic<int>>(0);
  const DatasetPtr numbers = Numbers(100);
  DatasetPtr slow = Map(numbers, numbers->spec(), /*seed=*/1, [begun](const Example&, Random&, const Example&) {
    ++*begun;
    begun->notify_one();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return absl::OkStatus();
  });
  const int wrapping = GENERATE(0, 1, 2, 3);
  BatchSourcePtr source = Batches(std::move(slow), {.batch_size = 100}).value();
  if (wrapping == 1) source = EveryNth(std::move(source), 1, 0);
  if (wrapping == 2) source = FirstBatches(std::move(source), {});
  if (wrapping == 3) source = Prefetch(std::move(source), 1);
  source = Prefetch(std::move(source), 1);
  logs::CapturedLog log(logs::LogFormat::kSimple);
  begun->wait(0);
  CHECK_FALSE(source->WaitUntilReady(std::chrono::milliseconds(50)));  // time for all threads to begin
  source.reset();
  CHECK(log.Text() == "");
  CHECK(*begun < 50);
}

TEST_CASE("A batch stays unchanged while it is held, and outlives its source") {
  BatchSourcePtr source = Open(Numbers(100), {.batch_size = 10}, /*depth=*/2);
  std::vector<Batch> held;
  while (std::optional<Batch> batch = source->Next().value()) held.push_back(*std::move(batch));
  source.reset();
  for (int64_t i = 0; i < 100; ++i) CHECK(held[i / 10].labels[0].data<int32_t>()[i % 10] == i);
}

TEST_CASE("Memory of batches that are let go is used again") {
  const BatchSourcePtr source = Open(Numbers(100), {.batch_size = 10});
  const void* first = source->Next().value()->features[0].raw_data();
  CHECK(source->Next().value()->features[0].raw_data() == first);
  const Batch held = *source->Next().value();
  CHECK(held.features[0].raw_data() == first);
  CHECK(source->Next().value()->features[0].raw_data() != first);
}

#ifndef __SANITIZE_ADDRESS__
TEST_CASE("Nothing is allocated per batch after warm-up") {
  const int depth = GENERATE(0, 2);
  const BatchSourcePtr source =
      Open(Augmented(100), {.batch_size = 10, .end_epoch = kEndless, .num_threads = 2}, depth);
  {
    // As many batches at a time as reader and consumer can ever have: one each, and those read ahead.
    std::vector<Batch> held;
    for (int i = 0; i < depth + 2; ++i) held.push_back(**source->Next());
  }
  for (int i = 0; i < 50; ++i) REQUIRE(source->Next().ok());
  const int64_t before = allocations;
  bool all_ok = true;
  for (int i = 0; i < 100; ++i) all_ok &= source->Next().ok();
  const int64_t made = allocations - before;
  CHECK(all_ok);
  CHECK(made == 0);
}
#endif

TEST_CASE("A WorkerPool runs every item of every loop once") {
  for (int num_threads : {1, 2, 8}) {
    WorkerPool pool(num_threads);
    for (int64_t n : {0, 1, 3, 1000}) {
      std::vector<int> runs(n);
      pool.ForEach(n, [&](int64_t i) { ++runs[i]; });
      CHECK(runs == std::vector<int>(n, 1));
    }
  }
}

TEST_CASE("An exception in any thread of a WorkerPool comes out of its loop, and the next loop is complete") {
  WorkerPool pool(3);
  std::atomic<int> runs = 0;
  CHECK_THROWS_AS(pool.ForEach(100, [](int64_t) { throw std::bad_alloc(); }), std::bad_alloc);
  pool.ForEach(100, [&](int64_t) { ++runs; });
  CHECK(runs == 100);
}

}  // namespace
}  // namespace official::data
