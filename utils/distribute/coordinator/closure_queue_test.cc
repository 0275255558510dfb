// The rules of the queue of tf.distribute.coordinator: closures are run at least once; the first error is raised once,
// and cancels those that wait.

#include "utils/distribute/coordinator/closure_queue.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>
#include <utility>

namespace official::coordinator {
namespace {

using compute::Tensor;

constexpr std::chrono::milliseconds kAtOnce(0);
constexpr std::chrono::hours kLong(1);
constexpr char kCancelled[] = "The corresponding function is cancelled. Please reschedule the function.";

Closure Named(const std::string& name) { return {.function = name, .arguments = {}}; }

// Takes a closure, of which there must be one.
Closure Take(ClosureQueue& queue) {
  std::optional<Closure> closure = queue.Take(kLong);
  REQUIRE(closure);
  return *std::move(closure);
}

TEST_CASE("A closure is taken once, and its results are fetched") {
  ClosureQueue queue(10);
  const Closure a = Named("a"), b = Named("b");
  REQUIRE(queue.Put(a).ok());
  REQUIRE(queue.Put(b).ok());
  CHECK_FALSE(queue.Done().value());
  const Closure first = Take(queue), second = Take(queue);
  CHECK(first.function == "a");
  CHECK(second.function == "b");
  CHECK_FALSE(queue.Take(kAtOnce));
  queue.Finish(second, std::vector<Tensor>{Tensor::Scalar(2.0f)});
  CHECK_FALSE(queue.Done().value());  // one is still run
  queue.Finish(first, std::vector<Tensor>{Tensor::Scalar(1.0f)});
  CHECK(queue.Done().value());
  CHECK(queue.Wait().ok());
  CHECK(a.result.Fetch().value()[0].scalar<float>() == 1);
  CHECK(b.result.Fetch().value()[0].scalar<float>() == 2);
}

TEST_CASE("A full queue lets who puts wait") {
  ClosureQueue queue(2);
  REQUIRE(queue.Put(Named("a")).ok());
  REQUIRE(queue.Put(Named("b")).ok());
  std::atomic<bool> has_room = false, waited = false;
  std::thread thread([&] {
    if (queue.Put(Named("c")).ok()) waited = has_room.load();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for a Put that does not wait to be seen
  has_room = true;
  CHECK(Take(queue).function == "a");
  thread.join();
  CHECK(waited);
  CHECK(Take(queue).function == "b");
  CHECK(Take(queue).function == "c");
}

TEST_CASE("A closure that is put back is run before those that wait") {
  ClosureQueue queue(1);
  REQUIRE(queue.Put(Named("a")).ok());
  Closure taken = Take(queue);
  REQUIRE(queue.Put(Named("b")).ok());
  queue.PutBack(std::move(taken));  // although the queue is full
  CHECK_FALSE(queue.Done().value());
  CHECK(Take(queue).function == "a");
  CHECK(Take(queue).function == "b");
}

TEST_CASE("The first error is raised once, after what is being run, and cancels what waits") {
  ClosureQueue queue(10);
  const Closure a = Named("a"), b = Named("b"), c = Named("c"), d = Named("d"), e = Named("e");
  for (const Closure& closure : {a, b, c, d, e}) REQUIRE(queue.Put(closure).ok());
  const Closure failing = Take(queue), also_failing = Take(queue), running = Take(queue);
  Closure lost = Take(queue);
  queue.Finish(failing, absl::OutOfRangeError("no data"));
  queue.Finish(also_failing, absl::InternalError("another"));
  std::thread thread([&] {
    (void)e.result.Fetch();          // which has a result while the error is raised
    queue.PutBack(std::move(lost));  // its worker is lost meanwhile
    queue.Finish(running, std::vector<Tensor>{Tensor::Scalar(3.0f)});
  });
  const bool joins = GENERATE(true, false);
  const absl::Status raised = joins ? queue.Wait() : queue.Done().status();
  thread.join();
  CHECK(raised == absl::OutOfRangeError("no data"));
  CHECK(a.result.Fetch().status() == absl::OutOfRangeError("no data"));
  CHECK(b.result.Fetch().status() == absl::InternalError("another"));
  CHECK(c.result.Fetch().value()[0].scalar<float>() == 3);
  CHECK(d.result.Fetch().status() == absl::CancelledError(kCancelled));
  CHECK(e.result.Fetch().status() == absl::CancelledError(kCancelled));
  CHECK(queue.Wait().ok());  // it is cleared
  CHECK(queue.Put(Named("f")).ok());
  CHECK(Take(queue).function == "f");
}

TEST_CASE("Put raises the error, too, and does not put") {
  ClosureQueue queue(10);
  REQUIRE(queue.Put(Named("a")).ok());
  queue.Finish(Take(queue), absl::OutOfRangeError("no data"));
  CHECK(queue.Put(Named("b")) == absl::OutOfRangeError("no data"));
  CHECK(queue.Done().value());
}

TEST_CASE("An error of the job ends all waits, always") {
  ClosureQueue queue(1);
  const Closure a = Named("a"), b = Named("b");
  REQUIRE(queue.Put(a).ok());
  Closure taken = Take(queue);
  REQUIRE(queue.Put(b).ok());
  const absl::Status lost = absl::UnavailableError("ps 0 was lost");
  auto full = std::async(std::launch::async, [&] { return queue.Put(Named("c")); });
  auto wait = std::async(std::launch::async, [&] { return queue.Wait(); });
  queue.Close(lost);
  CHECK(full.get() == lost);
  CHECK(wait.get() == lost);
  queue.PutBack(std::move(taken));
  CHECK(a.result.Fetch().status() == lost);
  CHECK(b.result.Fetch().status() == lost);
  CHECK(queue.Done().status() == lost);
  CHECK(queue.Wait() == lost);
  CHECK(queue.is_closed());
  CHECK_FALSE(queue.Take(kLong));
}

TEST_CASE("What waits when the job ends is cancelled") {
  ClosureQueue queue(10);
  const Closure a = Named("a");
  REQUIRE(queue.Put(a).ok());
  queue.Close(absl::OkStatus());
  CHECK(a.result.Fetch().status() == absl::CancelledError(kCancelled));
  CHECK_FALSE(queue.Take(kLong));
  CHECK(absl::IsFailedPrecondition(queue.Put(Named("b"))));
}

}  // namespace
}  // namespace official::coordinator
