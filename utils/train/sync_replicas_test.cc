#include "utils/train/sync_replicas.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace official::train {
namespace {

// What a worker does, and what comes of it.
struct Event {
  int worker;  // applies the gradient and waits for a token
  int64_t local_step;
  float gradient;
  bool is_taken;
  float variable;  // with a learning rate of 1
  int64_t global_step;
  std::vector<std::pair<int, int64_t>> tokens;  // the workers that get one now, and its value
};

struct Script {
  SyncReplicas::Options options;
  std::vector<Event> events;
};

// Found by running SyncReplicasOptimizer of TensorFlow 2.15.1 around GradientDescentOptimizer(1.0) for one variable,
// the accumulator and the queue of which were given these gradients by hand: after each one, the chief made its step if
// it could, and the workers that waited took tokens in turn.
const Script kScripts[] = {
    {{.replicas_to_aggregate = 2, .num_workers = 2, .num_tokens = 2},
     {
         {0, 0, 1, true, 0.0f, 0, {{0, 0}}},
         {0, 0, 8, true, -4.5f, 1, {{0, 0}}},
         {1, 0, 8, false, -4.5f, 1, {{1, 1}}},
         {1, 1, 2, true, -4.5f, 1, {{1, 1}}},
         {0, 0, 1, false, -4.5f, 1, {}},
         {1, 1, 8, true, -9.5f, 2, {{0, 2}, {1, 2}}},
         {0, 2, 1, true, -9.5f, 2, {}},
         {1, 2, 4, true, -12.0f, 3, {{0, 3}, {1, 3}}},
         {1, 3, 2, true, -12.0f, 3, {}},
         {0, 3, 1, true, -13.5f, 4, {{1, 4}, {0, 4}}},
         {1, 4, 1, true, -13.5f, 4, {}},
         {0, 4, 32, true, -30.0f, 5, {{1, 5}, {0, 5}}},
         {1, 5, 8, true, -30.0f, 5, {}},
         {0, 5, 8, true, -38.0f, 6, {{1, 6}, {0, 6}}},
     }},
    {{.replicas_to_aggregate = 2, .num_workers = 2, .num_tokens = 0},
     {
         {1, 0, 32, true, 0.0f, 0, {}},
         {0, 0, 32, true, -32.0f, 1, {{1, 1}, {0, 1}}},
         {1, 1, 32, true, -32.0f, 1, {}},
         {0, 1, 16, true, -56.0f, 2, {{1, 2}, {0, 2}}},
         {0, 2, 8, true, -56.0f, 2, {}},
         {1, 2, 2, true, -61.0f, 3, {{0, 3}, {1, 3}}},
         {1, 3, 2, true, -61.0f, 3, {}},
         {0, 3, 8, true, -66.0f, 4, {{1, 4}, {0, 4}}},
         {1, 4, 8, true, -66.0f, 4, {}},
         {0, 4, 16, true, -78.0f, 5, {{1, 5}, {0, 5}}},
         {0, 5, 32, true, -78.0f, 5, {}},
         {1, 5, 4, true, -96.0f, 6, {{0, 6}, {1, 6}}},
         {0, 6, 8, true, -96.0f, 6, {}},
         {1, 6, 1, true, -100.5f, 7, {{0, 7}, {1, 7}}},
     }},
    {{.replicas_to_aggregate = 2, .num_workers = 3, .num_tokens = 0},
     {
         {2, 0, 1, true, 0.0f, 0, {}},
         {0, 0, 4, true, -2.5f, 1, {{2, 1}, {0, 1}}},
         {1, 0, 32, false, -2.5f, 1, {{1, 1}}},
         {1, 1, 4, true, -2.5f, 1, {}},
         {0, 1, 2, true, -5.5f, 2, {{1, 2}, {0, 2}}},
         {1, 2, 16, true, -5.5f, 2, {{1, 2}}},
         {1, 2, 8, true, -17.5f, 3, {{1, 3}}},
         {1, 3, 32, true, -17.5f, 3, {{1, 3}}},
         {1, 3, 16, true, -41.5f, 4, {{1, 3}}},
         {2, 1, 16, false, -41.5f, 4, {{2, 4}}},
         {2, 4, 16, true, -41.5f, 4, {{2, 4}}},
         {0, 2, 1, false, -41.5f, 4, {{0, 4}}},
         {1, 3, 4, false, -41.5f, 4, {}},
         {0, 4, 4, true, -51.5f, 5, {{1, 5}, {0, 5}}},
     }},
    {{.replicas_to_aggregate = 4, .num_workers = 2, .num_tokens = 2},
     {
         {0, 0, 16, true, 0.0f, 0, {{0, 0}}},
         {0, 0, 16, true, 0.0f, 0, {{0, 0}}},
         {0, 0, 16, true, 0.0f, 0, {}},
         {1, 0, 1, true, -12.25f, 1, {{0, 1}, {1, 1}}},
         {1, 1, 8, true, -12.25f, 1, {{1, 1}}},
         {0, 1, 2, true, -12.25f, 1, {{0, 1}}},
         {0, 1, 32, true, -12.25f, 1, {}},
         {1, 1, 16, true, -26.75f, 2, {{0, 2}, {1, 2}}},
         {0, 2, 32, true, -26.75f, 2, {{0, 2}}},
         {1, 2, 2, true, -26.75f, 2, {{1, 2}}},
         {1, 2, 16, true, -26.75f, 2, {}},
         {0, 2, 1, true, -39.5f, 3, {{1, 3}, {0, 3}}},
         {1, 3, 1, true, -39.5f, 3, {{1, 3}}},
         {0, 3, 16, true, -39.5f, 3, {{0, 3}}},
     }},
    {{.replicas_to_aggregate = 3, .num_workers = 3, .num_tokens = 0},
     {
         {0, 0, 1, true, 0.0f, 0, {}},
         {2, 0, 8, true, 0.0f, 0, {}},
         {1, 0, 1, true, -3.33333325f, 1, {{0, 1}, {2, 1}, {1, 1}}},
         {0, 1, 16, true, -3.33333325f, 1, {}},
         {2, 1, 1, true, -3.33333325f, 1, {}},
         {1, 1, 16, true, -14.333333f, 2, {{0, 2}, {2, 2}, {1, 2}}},
         {1, 2, 2, true, -14.333333f, 2, {}},
         {2, 2, 4, true, -14.333333f, 2, {}},
         {0, 2, 1, true, -16.666666f, 3, {{1, 3}, {2, 3}, {0, 3}}},
         {2, 3, 4, true, -16.666666f, 3, {}},
         {1, 3, 2, true, -16.666666f, 3, {}},
         {0, 3, 4, true, -20.0f, 4, {{2, 4}, {1, 4}, {0, 4}}},
         {1, 4, 32, true, -20.0f, 4, {}},
         {2, 4, 4, true, -20.0f, 4, {}},
     }},
    {{.replicas_to_aggregate = 1, .num_workers = 2, .num_tokens = 1},
     {
         {1, 0, 1, true, -1.0f, 1, {{1, 0}}},
         {0, 0, 4, false, -1.0f, 1, {{0, 1}}},
         {0, 1, 2, true, -3.0f, 2, {{0, 1}}},
         {1, 0, 8, false, -3.0f, 2, {{1, 2}}},
         {1, 2, 32, true, -35.0f, 3, {{1, 2}}},
         {0, 1, 1, false, -35.0f, 3, {{0, 3}}},
         {0, 3, 2, true, -37.0f, 4, {{0, 3}}},
         {1, 2, 8, false, -37.0f, 4, {{1, 4}}},
         {1, 4, 16, true, -53.0f, 5, {{1, 4}}},
         {1, 4, 2, false, -53.0f, 5, {{1, 5}}},
         {1, 5, 32, true, -85.0f, 6, {{1, 5}}},
         {1, 5, 4, false, -85.0f, 6, {{1, 6}}},
         {1, 6, 16, true, -101.0f, 7, {{1, 6}}},
         {1, 6, 8, false, -101.0f, 7, {{1, 7}}},
     }},
};

std::string BytesOf(float gradient) { return {reinterpret_cast<const char*>(&gradient), sizeof gradient}; }

float MeanOf(const std::vector<std::string>& gradients) {
  float sum = 0;
  for (const std::string& bytes : gradients) {
    float gradient = 0;
    std::memcpy(&gradient, bytes.data(), sizeof gradient);
    sum += gradient;
  }
  return sum / static_cast<float>(gradients.size());
}

TEST_CASE("Gradients and tokens are TensorFlow's") {
  for (const Script& script : kScripts) {
    CAPTURE(script.options.replicas_to_aggregate, script.options.num_workers, script.options.num_tokens);
    SyncReplicas sync(script.options, 0);
    float variable = 0;
    std::vector<int> waiting;
    for (size_t i = 0; i < script.events.size(); ++i) {
      const Event& event = script.events[i];
      CAPTURE(i);
      CHECK(sync.Apply(event.worker, event.local_step, BytesOf(event.gradient)) == event.is_taken);
      if (sync.IsComplete()) variable -= MeanOf(sync.Take());
      CHECK(variable == Approx(event.variable));
      CHECK(sync.step() == event.global_step);
      // They may ask in any order.
      waiting.insert(waiting.begin(), event.worker);
      std::vector<std::pair<int, int64_t>> tokens;
      for (const auto& [worker, value] : event.tokens) {
        for (auto asks = waiting.begin(); asks != waiting.end(); ++asks) {
          if (*asks != worker) continue;
          const std::optional<int64_t> token = sync.TakeToken(worker);
          CHECK(token == value);
          waiting.erase(asks);
          break;
        }
      }
      for (const int worker : waiting) CHECK(sync.TakeToken(worker) == std::nullopt);
    }
  }
}

TEST_CASE("A worker that has waited longer keeps its token, and keeps nobody from another") {
  SyncReplicas sync({.replicas_to_aggregate = 2, .num_workers = 3}, 7);
  CHECK(sync.Apply(2, 7, "c"));
  CHECK(sync.Apply(0, 7, "a"));
  CHECK(sync.Take() == std::vector<std::string>{"a", "c"});
  // There are three tokens, and worker 2 does not ask.
  CHECK(sync.TakeToken(0) == 8);
  CHECK(sync.TakeToken(1) == 8);
  CHECK(sync.TakeToken(0) == std::nullopt);
  CHECK(sync.TakeToken(2) == 8);
}

TEST_CASE("Without workers a step needs fewer gradients") {
  SyncReplicas sync({.replicas_to_aggregate = 4, .num_workers = 2}, 0);
  sync.Leave(1);
  CHECK(sync.Apply(0, 0, ""));
  CHECK_FALSE(sync.IsComplete());
  CHECK(sync.FirstMissing() == std::nullopt);
  CHECK(sync.Apply(0, 0, ""));
  CHECK(sync.IsComplete());
  sync.Return(1);
  CHECK_FALSE(sync.IsComplete());
  CHECK(sync.FirstMissing() == 1);

  SyncReplicas backups({.replicas_to_aggregate = 2, .num_workers = 3}, 0);
  CHECK(backups.Apply(0, 0, ""));
  backups.Leave(1);
  CHECK_FALSE(backups.IsComplete());
  backups.Leave(2);
  CHECK(backups.IsComplete());
}

}  // namespace
}  // namespace official::train
