#include "official/serve/repeated_call.h"

#include <new>
#include <utility>

namespace official::serve {

RepeatedCall::RepeatedCall(std::chrono::milliseconds interval, std::function<void()> call)
    : thread_([this, interval, call = std::move(call)](const std::stop_token& stop) {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
          never_.wait_for(lock, stop, interval, [] { return false; });
          if (stop.stop_requested()) return;
          try {
            call();
          } catch (const std::bad_alloc&) {  // it is called again
          }
        }
      }) {}

}  // namespace official::serve
