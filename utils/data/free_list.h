// Scratch memory for work that any thread may do: there are as many pieces as threads that ever worked at once.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace official::data {

template <typename T>
class FreeList {
 public:
  // Returns a piece that was given back, or null: then the caller makes one.
  std::unique_ptr<T> Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return nullptr;
    std::unique_ptr<T> piece = std::move(free_.back());
    free_.pop_back();
    return piece;
  }
  void GiveBack(std::unique_ptr<T> piece) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(piece));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
};

}  // namespace official::data
