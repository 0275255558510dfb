// For tests of custom loops: replicas in a process and on workers that are threads, and what they compute as numbers.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "utils/distribute/custom_loop/strategy_scope.h"
#include "utils/distribute/memory_exchange.h"

namespace official::distribute {

using Values = std::vector<compute::Value>;
using Floats = std::vector<float>;

inline compute::Tensor Vector(const Floats& values) {
  return compute::Tensor::Of<float>({static_cast<int64_t>(values.size())}, absl::MakeConstSpan(values));
}

// A column [n, 1].
inline compute::Tensor Column(const Floats& values) {
  return Vector(values).Reshaped({static_cast<int64_t>(values.size()), 1});
}

template <typename T = float>
std::vector<T> Elements(const compute::Tensor& tensor) {
  return {tensor.flat<T>().begin(), tensor.flat<T>().end()};
}

// The elements of each component.
inline std::vector<Floats> Components(const PerReplica& value) {
  std::vector<Floats> all;
  for (const compute::Tensor& tensor : value.values) all.push_back(Elements(tensor));
  return all;
}

// The kind of device under test.
inline std::string Kind() {
  const char* const kind = std::getenv("OP_TEST_KIND");
  return kind == nullptr ? "cpu" : kind;
}

// A strategy of so many devices, on the CPU logical ones, and its scope.
struct Replicas {
  explicit Replicas(int num_replicas, const std::string& kind = Kind())
      : strategy(Strategy::Create({.device_kind = kind, .num_replicas = num_replicas, .num_threads = 1}).value()),
        scope(StrategyScope::Create(*strategy, /*seed=*/1).value()) {}

  // Runs a function without results once.
  absl::Status Do(const std::function<void(ReplicaContext&)>& fn) {
    ReplicaFunction function([&](ReplicaContext& context, absl::Span<const compute::Value>) {
      fn(context);
      return Values{};
    });
    return scope->Run(function, {}).status();
  }
  // A float scalar that is `value` times the replica's number.
  static compute::Value TimesId(ReplicaContext& context, float value) {
    return context.graph().Constant(
        compute::Tensor::Scalar(value * static_cast<float>(context.replica_id_in_sync_group())));
  }
  static compute::Value Constant(ReplicaContext& context, float value) {
    return context.graph().Constant(compute::Tensor::Scalar(value));
  }

  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<StrategyScope> scope;
};

// Calls f(worker, strategy, scope) for each of the workers, which divide the replicas, in a thread of its own.
template <typename F>
void OnWorkers(const std::vector<compute::Share>& split, const F& f) {
  const auto exchanges = MakeMemoryExchanges(static_cast<int>(split.size()));
  std::vector<std::thread> threads;
  for (size_t w = 0; w < split.size(); ++w) {
    threads.emplace_back([&, w] {
      StrategyOptions options{.num_replicas = static_cast<int>(split.back().end), .num_threads = 1};
      options.workers = {exchanges[w].get(), split};
      const auto strategy = Strategy::Create(options).value();
      // Only the chief's seed counts.
      const auto scope = StrategyScope::Create(*strategy, /*seed=*/1 + w).value();
      f(static_cast<int>(w), *strategy, *scope);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace official::distribute
