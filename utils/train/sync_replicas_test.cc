#include "utils/train/sync_replicas.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "utils/files/files.h"

namespace official::train {
namespace {

// What a worker does, and what comes of it: an event of sync_replicas_scripts.json, which the test interop/
// sync_replicas_test.py gives to TensorFlow's SyncReplicasOptimizer. The learning rate is 1.
struct Event {
  int worker;  // applies the gradient and waits for a token
  int64_t local_step;
  float gradient;
  bool is_taken;
  float variable;
  int64_t global_step;
  std::vector<std::pair<int, int64_t>> tokens;  // the workers that get one now, and its value
};

struct Script {
  SyncReplicas::Options options;
  std::vector<Event> events;
};

std::vector<Script> ReadScripts() {
  const nlohmann::json file =
      nlohmann::json::parse(files::ReadFile("utils/train/sync_replicas_scripts.json", 1 << 20).value());
  std::vector<Script> scripts;
  for (const nlohmann::json& script : file.at("scripts")) {
    Script& read = scripts.emplace_back();
    read.options = {.replicas_to_aggregate = script.at("replicas_to_aggregate"),
                    .num_workers = script.at("num_workers"),
                    .num_tokens = script.at("num_tokens")};
    for (const nlohmann::json& e : script.at("events")) {
      read.events.push_back({e[0], e[1], e[2], e[3], e[4], e[5], e[6]});
    }
  }
  return scripts;
}

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
  const std::vector<Script> scripts = ReadScripts();
  REQUIRE(scripts.size() == 6);
  for (const Script& script : scripts) {
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
