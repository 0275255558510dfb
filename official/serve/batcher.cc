#include "official/serve/batcher.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "official/serve/rest_api.h"

namespace official::serve {
namespace {

void Finish(Batcher::Done& done, absl::StatusOr<std::vector<Values>> result) {
  if (done == nullptr) return;
  std::exchange(done, nullptr)(std::move(result));
}

}  // namespace

void Batcher::Add(std::shared_ptr<Servable> servable, std::vector<Values> examples, Clock::time_point deadline,
                  Done done) {
  auto request = std::make_shared<Request>();
  request->servable = std::move(servable);
  request->outputs.resize(examples.size());
  request->num_left = examples.size();
  request->deadline = deadline;
  request->done = std::move(done);
  const Clock::time_point now = Clock::now();
  {
    const std::scoped_lock lock(mutex_);
    for (size_t i = 0; i < examples.size(); ++i) waiting_.push_back({request, i, std::move(examples[i]), now});
  }
  changed_.notify_one();
}

void Batcher::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = hurries_ = true;
  }
  changed_.notify_one();
}

void Batcher::Hurry() {
  {
    const std::scoped_lock lock(mutex_);
    hurries_ = true;
  }
  changed_.notify_one();
}

bool Batcher::IsFull() const {
  return waiting_.size() >= options_.max_batch_size ||
         waiting_.front().request->servable != waiting_.back().request->servable;
}

std::vector<Batcher::Item> Batcher::Take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
  if (!waiting_.empty() && options_.batch_timeout.count() > 0) {
    const Item& first = waiting_.front();
    const Clock::time_point end = std::min(first.added + options_.batch_timeout, first.request->deadline);
    changed_.wait_until(lock, end, [&] { return hurries_ || IsFull(); });
  }
  std::vector<Item> items;
  while (!waiting_.empty() && items.size() < options_.max_batch_size &&
         (items.empty() || items[0].request->servable == waiting_.front().request->servable)) {
    items.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return items;
}

void Batcher::RunItems(std::vector<Item> items, const RunBatch& run) {
  const Clock::time_point now = Clock::now();
  std::vector<Values> examples;
  std::vector<Item> computed;
  for (Item& item : items) {
    if (item.request->done == nullptr) continue;  // it has failed
    if (item.request->deadline <= now) {
      Finish(item.request->done, absl::DeadlineExceededError(kTooLate));
      continue;
    }
    examples.push_back(std::move(item.example));
    computed.push_back(std::move(item));
  }
  if (examples.empty()) return;
  const std::shared_ptr<Servable>& servable = computed[0].request->servable;
  absl::StatusOr<std::vector<Values>> outputs = run(servable, examples);
  // The items of a request follow each other.
  if (outputs.ok() || computed.front().request == computed.back().request) {
    return Deliver(computed, std::move(outputs));
  }
  for (size_t begin = 0, end = 0; begin < computed.size(); begin = end) {
    while (end < computed.size() && computed[end].request == computed[begin].request) ++end;
    Deliver(absl::MakeConstSpan(computed).subspan(begin, end - begin),
            run(servable, absl::MakeConstSpan(examples).subspan(begin, end - begin)));
  }
}

void Batcher::Deliver(absl::Span<const Item> items, absl::StatusOr<std::vector<Values>> outputs) {
  for (size_t i = 0; i < items.size(); ++i) {
    Request& request = *items[i].request;
    if (!outputs.ok()) {
      Finish(request.done, outputs.status());
      continue;
    }
    request.outputs[items[i].index] = std::move((*outputs)[i]);
    if (--request.num_left == 0) Finish(request.done, std::move(request.outputs));
  }
}

void Batcher::Serve(const RunBatch& run) {
  for (std::vector<Item> items = Take(); !items.empty(); items = Take()) RunItems(std::move(items), run);
}

}  // namespace official::serve
