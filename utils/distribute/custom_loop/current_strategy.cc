#include "utils/distribute/custom_loop/current_strategy.h"

#include <memory>

#include "absl/status/statusor.h"
#include "utils/compute/core/check.h"

namespace official::distribute {
namespace {

thread_local Strategy* current = nullptr;

Strategy& DefaultStrategy() {
  // Not destroyed: what uses it may live until the process ends.
  static Strategy* const strategy = [] {
    absl::StatusOr<std::unique_ptr<Strategy>> made = Strategy::Create({.name = "default"});
    OFFICIAL_CHECK(made.ok()) << made.status().message();
    return made->release();
  }();
  return *strategy;
}

}  // namespace

Strategy& GetStrategy() { return current == nullptr ? DefaultStrategy() : *current; }

bool HasStrategy() { return current != nullptr; }

UnderStrategy::UnderStrategy(Strategy& strategy) : before_(current) { current = &strategy; }

UnderStrategy::~UnderStrategy() { current = before_; }

}  // namespace official::distribute
