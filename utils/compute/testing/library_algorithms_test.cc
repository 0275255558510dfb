// The algorithms of cuDNN and cuBLASLt on emulated devices: which of them are timed, which is kept, and that it is
// found again.

#include "utils/compute/cuda_emulation/library_algorithms.h"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/algorithm_choices.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/program/program.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using cuda_emulation::TheAlgorithms;

// A node of which the library knows two algorithms; the first is what it recommends.
struct Choice {
  std::function<Value(Value, Value)> build;
  Shape a, b;
  std::string first, second;
  std::string key;  // a part of it
};

Choice Convolution() {
  return {.build = [](Value a, Value b) { return Conv2D(a, b); },
          .a = {2, 8, 9, 4},
          .b = {3, 3, 4, 8},
          .first = "engine 4, knobs 2=0 14=3",
          .second = "engine 4, knobs 2=1 14=3",
          .key = ": output of float32[2,8,9,4] * float32[3,3,4,8], padding"};
}

std::string ProductAlgorithm(int id) {
  return absl::StrCat("algorithm ", id,
                      ", tile 20, stages 3, split 1, reduction 0, swizzle 0, option 0, inner shape 0, cluster shape 2");
}

Choice Product(int64_t m) {
  return {.build = [](Value a, Value b) { return MatMul(a, b, {.transpose_b = true}); },
          .a = {m, 256},
          .b = {128, 256},
          .first = ProductAlgorithm(7),
          .second = ProductAlgorithm(66),
          .key = absl::StrCat(": 1 x float32[", m, ",256] * float32[128,256]^T in float32")};
}

// Runs the node once, on a device of its own.
class ChoosingTest {
 public:
  explicit ChoosingTest(const Choice& choice) {
    const Value a = graph_.Input("a", {DType::kFloat32, choice.a}), b = graph_.Input("b", {DType::kFloat32, choice.b});
    roots_ = {{a, b}, {choice.build(a, b)}, {}};
    feeds_ = {testing::RandomTensor(a.shape(), 1), testing::RandomTensor(b.shape(), 2)};
  }
  ~ChoosingTest() { TheAlgorithms() = {}; }

  // Returns how often each algorithm of TheAlgorithms().timed ran.
  std::map<std::string, int> Run(AlgorithmChoices& choices) const {
    for (auto& [name, timed] : TheAlgorithms().timed) timed.runs = 0;
    const std::unique_ptr<Device> device = MakeDevice("cuda").value();
    REQUIRE(Evaluate(graph_, roots_, feeds_, *device, {.choices = &choices}).ok());
    std::map<std::string, int> runs;
    for (const auto& [name, timed] : TheAlgorithms().timed) runs[name] = timed.runs;
    return runs;
  }

 private:
  Graph graph_;
  GraphRoots roots_;
  std::vector<Tensor> feeds_;
};

// The only line of choices, up to the tab and from there.
std::string KeyIn(const AlgorithmChoices& choices) {
  const std::string text = choices.ToText();
  const size_t line = text.find('\n') + 1;
  return text.substr(line, text.find('\t') - line);
}
std::string ChoiceIn(const AlgorithmChoices& choices) {
  const std::string text = choices.ToText();
  const size_t begin = text.find('\t') + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST_CASE("The fastest algorithm is chosen, and far slower ones are not timed for long") {
  const Choice choice = GENERATE(Convolution(), Product(128));
  const ChoosingTest test(choice);
  AlgorithmChoices choices;
  SECTION("the first") {
    TheAlgorithms().timed = {{choice.first, {10}}, {choice.second, {30}}, {"engine 1", {40}}};
    std::map<std::string, int> runs = test.Run(choices);
    CHECK_THAT(KeyIn(choices), Catch::Contains(choice.key));
    CHECK(ChoiceIn(choices) == choice.first);
    CHECK(runs[choice.first] == 4 + 1);
    CHECK(runs[choice.second] == 2);
  }
  SECTION("another") {
    TheAlgorithms().timed = {{choice.first, {10}}, {choice.second, {8}}, {"engine 1", {11}}};
    std::map<std::string, int> runs = test.Run(choices);
    CHECK(ChoiceIn(choices) == choice.second);
    CHECK(runs[choice.first] == 4);
    CHECK(runs[choice.second] == 4 + 1);
  }
  CHECK(choices.TakeNew().count == 1);
}

TEST_CASE("What was chosen is found again when the library recommends something else") {
  const Choice choice = GENERATE(Convolution(), Product(128));
  const ChoosingTest test(choice);
  AlgorithmChoices choices;
  TheAlgorithms().timed = {{choice.first, {10}}, {choice.second, {5}}, {"engine 1", {20}}};
  test.Run(choices);
  REQUIRE(ChoiceIn(choices) == choice.second);
  TheAlgorithms().timed = {{choice.first, {5}}, {choice.second, {10}}, {"engine 1", {20}}};
  TheAlgorithms().reversed = GENERATE(false, true);
  choices.TakeNew();
  std::map<std::string, int> runs = test.Run(choices);
  CHECK(runs[choice.first] == 0);
  CHECK(runs[choice.second] == 1);
  CHECK(choices.TakeNew().count == 0);
}

TEST_CASE("A choice that the library does not know is made anew") {
  const Choice choice = GENERATE(Convolution(), Product(128));
  const ChoosingTest test(choice);
  AlgorithmChoices choices;
  TheAlgorithms().timed = {{choice.first, {10}}, {choice.second, {5}}, {"engine 1", {20}}};
  test.Run(choices);
  REQUIRE(choices.Parse(absl::StrCat(KeyIn(choices), "\trecommended 3")).ok());
  choices.TakeNew();
  test.Run(choices);
  CHECK(ChoiceIn(choices) == choice.second);
  CHECK(choices.TakeNew().count == 1);
}

TEST_CASE("Small products are not timed") {
  const Choice choice = Product(127);
  AlgorithmChoices choices;
  TheAlgorithms().timed = {{choice.first, {10}}, {choice.second, {5}}};
  std::map<std::string, int> runs = ChoosingTest(choice).Run(choices);
  CHECK(runs[choice.first] == 1);
  CHECK(runs[choice.second] == 0);
  CHECK(choices.TakeNew().count == 0);
}

TEST_CASE("Of the engines that cuDNN compiles when a plan is made five are timed") {
  constexpr int kKnown = 7;
  const auto name = [](int i) { return absl::StrCat("engine 38, knobs 40=", i); };
  const ChoosingTest test(Convolution());
  TheAlgorithms().compiles = true;
  TheAlgorithms().timed = {{Convolution().first, {20}}, {Convolution().second, {20}}, {"engine 1", {20}}};
  for (int i = 0; i < kKnown; ++i) TheAlgorithms().timed[name(i)] = {10.0 - i};
  AlgorithmChoices choices;
  std::map<std::string, int> runs = test.Run(choices);
  CHECK(ChoiceIn(choices) == name(4));
  CHECK(runs[name(3)] == 4);
  CHECK(runs[name(5)] == 0);
  CHECK(runs["engine 1"] == 2);

  // One that was chosen elsewhere is compiled, however many are recommended before it.
  REQUIRE(choices.Parse(absl::StrCat(KeyIn(choices), "\t", name(6))).ok());
  runs = test.Run(choices);
  CHECK(runs[name(4)] == 0);
  CHECK(runs[name(6)] == 1);
}

}  // namespace
}  // namespace official::compute
