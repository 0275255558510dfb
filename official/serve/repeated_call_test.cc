#include "official/serve/repeated_call.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <new>
#include <thread>
#include <utility>

namespace official::serve {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST_CASE("a call that runs out of memory is made again") {
  std::promise<void> again;
  int num_calls = 0;
  const RepeatedCall repeated(milliseconds(1), [&] {
    if (++num_calls == 2) again.set_value();
    throw std::bad_alloc();
  });
  again.get_future().wait();
}

TEST_CASE("the end waits for a call that has begun, and not for the time until the next one") {
  std::atomic<bool> in_call = false;
  {
    std::promise<void> begun;
    bool is_first = true;
    const RepeatedCall repeated(milliseconds(1), [&] {
      in_call = true;
      if (std::exchange(is_first, false)) begun.set_value();
      std::this_thread::sleep_for(milliseconds(20));
      in_call = false;
    });
    begun.get_future().wait();
  }
  CHECK_FALSE(in_call);
  bool is_called = false;
  {
    const RepeatedCall repeated(hours(1), [&] { is_called = true; });
  }
  CHECK_FALSE(is_called);
}

}  // namespace
}  // namespace official::serve
