// The variables of parameter servers: where they are placed, and what the servers do with them.

#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/distribute/coordinator/variable_client.h"
#include "utils/distribute/coordinator/variable_server.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/strategy.h"

namespace official::coordinator {
namespace {

using Catch::Matchers::Contains;
using compute::Tensor;
using compute::Value;
using distribute::ParameterServers;
using distribute::ReplicaContext;
using Floats = std::vector<float>;

Tensor Vector(const Floats& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, absl::MakeConstSpan(values));
}

Floats Elements(const Tensor& tensor) { return {tensor.flat<float>().begin(), tensor.flat<float>().end()}; }

// Two servers, which a client asks until it is destroyed.
struct Servers {
  explicit Servers(const Functions& functions) {
    for (int s = 0; s < 2; ++s) {
      strategies.push_back(distribute::Strategy::Create({.num_threads = 1}).value());
      servers.push_back(std::make_unique<VariableServer>(functions, strategies[s]->device(0)));
    }
    for (int s = 0; s < 2; ++s) {
      serving.push_back(std::async(std::launch::async, [this, s] {
        ParameterServers self(*exchanges[1 + s], 2, kTimeout);
        return self.Serve(*servers[s], [] { return false; });
      }));
    }
  }
  ~Servers() { (void)worker.Leave(); }

  static constexpr std::chrono::seconds kTimeout{60};
  std::vector<std::unique_ptr<distribute::Exchange>> exchanges = distribute::MakeMemoryExchanges(3);
  std::vector<std::unique_ptr<distribute::Strategy>> strategies;
  std::vector<std::unique_ptr<VariableServer>> servers;
  std::vector<std::future<absl::Status>> serving;
  ParameterServers worker{*exchanges[0], 2, kTimeout};
  VariableClient client{worker};
};

TEST_CASE("Variables are placed on the servers in turn, in the order of their creation") {
  const Functions functions;
  Servers job(functions);
  for (const char* const name : {"c", "a", "b"}) REQUIRE(job.client.Create(name, Vector({1})).ok());
  REQUIRE(job.client.Write("a", Vector({2})).ok());  // where it is
  REQUIRE(job.client.Create("d", Vector({4, 5})).ok());
  VariableClient other(job.worker);
  REQUIRE(other.UpdatePlacement().ok());
  std::vector<std::pair<std::string, std::vector<int>>> placed;
  for (const auto& [name, at] : other.placed()) placed.emplace_back(name, at.shards[0].servers);
  CHECK(placed ==
        std::vector<std::pair<std::string, std::vector<int>>>{{"a", {1}}, {"b", {0}}, {"c", {0}}, {"d", {1}}});
  CHECK(other.placed().at("d").type == Vector({4, 5}).type());
  const std::vector<Tensor> values = other.Read({"d", "a", "c"}).value();
  CHECK(Elements(values[0]) == Floats{4, 5});
  CHECK(Elements(values[1]) == Floats{2});
  CHECK(Elements(values[2]) == Floats{1});
  CHECK(absl::IsNotFound(other.Read({"a", "x"}).status()));
  CHECK(absl::IsInvalidArgument(other.Write("a", Vector({1, 2}))));
}

TEST_CASE("Slots are where their variable is, and an update reaches only the servers of its variables") {
  Functions functions;
  functions.RegisterStep("momentum", [](ReplicaContext& context, absl::Span<const Value> inputs) {
    const Value a = context.graph().Variable({"a", inputs[0].type(), {}});
    const Value b = context.graph().Variable({"b", inputs[0].type(), {}});
    // A rate that depends on the input, which the servers do not have.
    context.ApplyGradients([](const auto& in, auto of) { return compute::Momentum(in, of, {.momentum = 0.5}); },
                           compute::Reshape(inputs[1], {}),
                           std::vector<compute::VariableGradient>{{a, inputs[0]}, {b, compute::Neg(inputs[0])}});
    return std::vector<Value>{};
  });
  functions.RegisterStep("only_b", [](ReplicaContext& context, absl::Span<const Value> inputs) {
    const Value b = context.graph().Variable({"b", inputs[0].type(), {}});
    context.ApplyGradients(compute::GradientDescent, context.graph().Constant(Tensor::Scalar(1.0f)),
                           std::vector<compute::VariableGradient>{{b, inputs[0]}});
    return std::vector<Value>{};
  });
  Servers job(functions);
  for (const char* const name : {"a", "b"}) REQUIRE(job.client.Create(name, Vector({10, 20})).ok());
  const std::vector<compute::TensorType> types = {Vector({1, 1}).type(), Vector({1}).type()};
  REQUIRE(job.client.Prepare("momentum", types).ok());
  REQUIRE(job.client.UpdatePlacement().ok());
  CHECK(job.client.placed().at("a/Momentum").shards[0].servers == std::vector<int>{0});
  CHECK(job.client.placed().at("b/Momentum").shards[0].servers == std::vector<int>{1});
  CHECK(job.client.placed().size() == 4);

  // What a worker hands over: the learning rate, then the gradients.
  REQUIRE(job.client.Update("momentum", types, {"", "a", "b"}, {Tensor::Scalar(2.0f), Vector({1, 2}), Vector({-1, -2})})
              .ok());
  REQUIRE(job.client.Update("only_b", {types[0]}, {"", "b"}, {Tensor::Scalar(1.0f), Vector({100, 100})}).ok());
  const std::vector<Tensor> values = job.client.Read({"a", "b", "b/Momentum"}).value();
  CHECK(Elements(values[0]) == Floats{8, 16});
  CHECK(Elements(values[1]) == Floats{12 - 100, 24 - 100});
  CHECK(Elements(values[2]) == Floats{-1, -2});
  CHECK(absl::IsNotFound(job.client.Update("momentum", types, {"x"}, {Vector({1, 2})})));
  const absl::Status other =
      job.client.Update("only_b", {types[0]}, {"", "b", "b"}, {Tensor::Scalar(1.0f), Vector({1, 1}), Vector({1, 1})});
  CHECK(absl::IsDataLoss(other));
  CHECK_THAT(std::string(other.message()), Contains("all tasks must build it alike"));
  CHECK_THAT(std::string(job.client.Prepare("none", {}).message()), Contains("no step 'none' is registered"));
}

TEST_CASE("A variable of several shards is read, written and updated as one") {
  Functions functions;
  functions.RegisterStep("momentum", [](ReplicaContext& context, absl::Span<const Value> inputs) {
    const Value a = context.graph().Variable({"a", inputs[0].type(), {}});
    context.ApplyGradients([](const auto& in, auto of) { return compute::Momentum(in, of, {.momentum = 0.5}); },
                           context.graph().Constant(Tensor::Scalar(1.0f)),
                           std::vector<compute::VariableGradient>{{a, inputs[0]}});
    return std::vector<Value>{};
  });
  const Floats numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const auto rows = [&](float add) {
    Floats values;
    for (const float number : numbers) values.insert(values.end(), {number + add, 100 * number + add});
    return Vector(values).Reshaped({static_cast<int64_t>(numbers.size()), 2});
  };
  Servers job(functions);
  REQUIRE(job.client.Create("first", Vector({1})).ok());
  // More than ten, so that their names are not in the order of their numbers.
  REQUIRE(job.client.Create("a", rows(0), 12).ok());
  REQUIRE(job.client.Prepare("momentum", {rows(0).type()}).ok());
  VariableClient other(job.worker);
  REQUIRE(other.UpdatePlacement().ok());
  const VariableClient::Placed& placed = other.placed().at("a");
  CHECK(placed.type == rows(0).type());
  REQUIRE(placed.shards.size() == 12);
  for (int i = 0; i < 12; ++i) {
    CHECK(placed.shards[i].name == absl::StrCat("a/part_", i));
    CHECK(placed.shards[i].servers == std::vector<int>{(i + 1) % 2});
    CHECK(placed.shards[i].type.shape.dim(0) == (i == 0 ? 2 : 1));
  }
  CHECK(Elements(other.Read({"a"}).value()[0]) == Elements(rows(0)));
  REQUIRE(other.Update("momentum", {rows(0).type()}, {"", "a"}, {Tensor::Scalar(1.0f), rows(-5)}).ok());
  const std::vector<Tensor> values = other.Read({"a", "a/Momentum"}).value();
  CHECK(Elements(values[0]) == Floats(26, 5));
  CHECK(Elements(values[1]) == Elements(rows(-5)));
  REQUIRE(other.Write("a/Momentum", rows(3)).ok());
  CHECK(Elements(other.Read({"a/Momentum"}).value()[0]) == Elements(rows(3)));
  CHECK(absl::IsInvalidArgument(other.Write("a", Vector({1}))));
}

TEST_CASE("A variable that is called like a shard is whole, unless there is such a shard") {
  const Functions functions;
  Servers job(functions);
  REQUIRE(job.client.Create("a/part_7/b", Vector({7})).ok());
  REQUIRE(job.client.Create("a/b", Vector({1, 2, 3})).ok());
  REQUIRE(job.client.Create("c", Vector({4, 5}), 2).ok());  // c/part_0 on server 0
  VariableClient other(job.worker);
  REQUIRE(other.UpdatePlacement().ok());
  CHECK(other.placed().size() == 3);
  const std::vector<Tensor> values = other.Read({"a/part_7/b", "a/b", "c"}).value();
  CHECK(Elements(values[0]) == Floats{7});
  CHECK(Elements(values[1]) == Floats{1, 2, 3});
  CHECK(Elements(values[2]) == Floats{4, 5});
  const absl::Status same = job.client.Create("c/part_0", Vector({1}));
  CHECK(absl::IsAlreadyExists(same));
  CHECK_THAT(std::string(same.message()), Contains("variable c/part_0 would be shard 0 of c and shard 0 of c/part_0;"));
}

TEST_CASE("A server survives requests that are none") {
  const Functions functions;
  const auto strategy = distribute::Strategy::Create({.num_threads = 1}).value();
  VariableServer server(functions, strategy->device(0));
  for (const char* const request : {"", "x", "W", "Wabc", "Rabc", "P", "Pabc", "U\0\0"}) {
    const absl::Status status = server.Answer(0, request).status();
    INFO(request);
    CHECK((absl::IsDataLoss(status) || absl::string_view(request) == "W"));
  }
  CHECK(server.Answer(0, "L").value().empty());
}

}  // namespace
}  // namespace official::coordinator
