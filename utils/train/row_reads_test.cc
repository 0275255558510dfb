// Which tables a worker of a job with parameter servers may read by rows.

#include "utils/train/row_reads.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/l2_loss/l2_loss.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Gather;
using compute::Sum;
using compute::Value;

// A graph whose examples are two lists of row numbers.
struct TwoLists {
  compute::Graph graph;
  Value first = graph.Input("first", {DType::kInt32, {4}});
  Value second = graph.Input("second", {DType::kInt32, {2, 3}});

  Value Variable(const std::string& name, const compute::TensorType& type = {DType::kFloat32, {9, 2}}) {
    return graph.Variable({name, type, compute::Initializer::Zeros()});
  }
  std::vector<RowReads> Find(Value loss, const std::vector<Value>& variables) {
    const std::vector<Value> gradients = compute::Gradients(loss, variables);
    REQUIRE(graph.status().ok());
    return FindRowReads(graph, variables, gradients, {first, second});
  }
  bool IsReadByRows(Value loss, Value table) { return Find(loss, {table}).size() == 1; }
};

TEST_CASE("Tables that are read at the same rows are one group") {
  TwoLists g;
  const Value a = g.Variable("a"), b = g.Variable("b"), c = g.Variable("c");
  const Value both = Gather(c, g.second);
  const Value rows = compute::Add(Gather(a, g.first), Gather(b, g.first));
  const std::vector<RowReads> found = g.Find(compute::Add(Sum(rows), Sum(both)), {a, b, c});
  size_t tables = 0;
  for (const RowReads& reads : found) {
    tables += reads.tables.size();
    CHECK(reads.gradients.size() == reads.tables.size());
    CHECK(reads.ids.shape().rank() == 1);
  }
  CHECK(tables == 3);
}

TEST_CASE("A table may be read at several places, and at rows that are computed from the examples") {
  TwoLists g;
  const Value a = g.Variable("a");
  const Value moved = compute::Reshape(compute::Slice(g.second, {0, 1}, {2, 1}), {2});
  const std::vector<RowReads> found = g.Find(compute::Add(Sum(Gather(a, g.first)), Sum(Gather(a, moved))), {a});
  REQUIRE(found.size() == 1);
  CHECK(found[0].ids.shape() == compute::Shape{6});
}

TEST_CASE("Rows may be computed with constants") {
  TwoLists g;
  const Value a = g.Variable("a"), one = g.graph.Constant(compute::Tensor::Of<int32_t>({1}, {1}));
  CHECK(g.IsReadByRows(Sum(Gather(a, compute::Add(g.first, one))), a));
}

TEST_CASE("A table that is also read as a whole is not read by rows") {
  TwoLists g;
  const Value a = g.Variable("a"), looked_up = Sum(Gather(a, g.first));
  SECTION("not so") { CHECK(g.IsReadByRows(looked_up, a)); }
  SECTION("in the loss") { CHECK_FALSE(g.IsReadByRows(compute::Add(looked_up, compute::L2Loss({a})), a)); }
  SECTION("elsewhere") {
    compute::L2Loss({a});
    CHECK_FALSE(g.IsReadByRows(looked_up, a));
  }
}

TEST_CASE("A table that is read at other rows than its gradient has is not read by rows") {
  TwoLists g;
  const Value a = g.Variable("a"), looked_up = Sum(Gather(a, g.first));
  Gather(a, g.second);
  CHECK_FALSE(g.IsReadByRows(looked_up, a));
}

TEST_CASE("Rows that do not depend on the examples alone are not known before the step") {
  TwoLists g;
  const Value a = g.Variable("a");
  SECTION("a variable") {
    const Value ids = g.Variable("ids", {DType::kInt32, {4}});
    CHECK_FALSE(g.IsReadByRows(Sum(Gather(a, ids)), a));
  }
  SECTION("another input") {
    const Value ids = g.graph.Input("other", {DType::kInt32, {4}});
    CHECK_FALSE(g.IsReadByRows(Sum(Gather(a, ids)), a));
  }
}

}  // namespace
}  // namespace official::train
