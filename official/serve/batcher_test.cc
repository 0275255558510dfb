#include "official/serve/batcher.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <variant>

namespace official::serve {
namespace {

using std::chrono::hours;
using Result = absl::StatusOr<std::vector<Values>>;

// The outputs are the examples; one that is "bad" fails its batch.
Result Echo(const std::shared_ptr<Servable>&, absl::Span<const Values> examples) {
  for (const Values& example : examples) {
    if (std::get<std::string>(example[0]) == "bad") return absl::InternalError("it is bad");
  }
  return std::vector<Values>(examples.begin(), examples.end());
}

std::vector<Values> Texts(const std::vector<std::string>& texts) {
  std::vector<Values> examples;
  for (const std::string& text : texts) examples.push_back({text});
  return examples;
}

std::vector<std::string> TextsOf(const Result& result) {
  std::vector<std::string> texts;
  for (const Values& output : result.value()) texts.push_back(std::get<std::string>(output[0]));
  return texts;
}

TEST_CASE("an example that fails its batch fails its own request only") {
  Batcher batcher({.max_batch_size = 5});
  const auto deadline = Batcher::Clock::now() + hours(1);
  std::vector<std::optional<Result>> results(4);
  const std::vector<std::vector<std::string>> requests = {{"a", "b"}, {"c", "bad"}, {"d", "e"}, {"f"}};
  for (size_t i = 0; i < requests.size(); ++i) {
    batcher.Add(nullptr, Texts(requests[i]), deadline,
                [&results, i](Result result) { results[i] = std::move(result); });
  }
  batcher.Stop();
  std::vector<size_t> sizes;
  const auto run = [&](const std::shared_ptr<Servable>& servable, absl::Span<const Values> examples) {
    sizes.push_back(examples.size());
    return Echo(servable, examples);
  };
  batcher.Serve(run);
  // The first batch, its three requests, and the second batch.
  CHECK(sizes == std::vector<size_t>{5, 2, 2, 1, 2});
  for (const size_t i : {0, 2, 3}) CHECK(TextsOf(results[i].value()) == requests[i]);
  CHECK(results[1].value().status() == absl::InternalError("it is bad"));
}

}  // namespace
}  // namespace official::serve
