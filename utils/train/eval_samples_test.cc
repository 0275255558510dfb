// The examples of an evaluation that event files show, with which its results are the same.

#include "utils/train/eval_samples.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/protos/event.pb.h"
#include "utils/train/class_samples.h"
#include "utils/train/line_model.h"

namespace official::train {
namespace {

using compute::Tensor;
using Rows = std::vector<std::vector<std::string>>;

// The line, whose evaluation predicts twice the features. Samples have the label and twice the first feature, and the
// two features as an image.
Model LineWithSamples() {
  Model model = Line();
  model.model_fn = [line = model.model_fn](const ModelInputs& in) {
    absl::StatusOr<ModelSpec> spec = line(in);
    if (in.mode == Mode::kEval) spec->predictions = {{"twice", compute::Add(in.features[0], in.features[0])}};
    return spec;
  };
  model.eval_samples = [](const BatchShare& share, const data::Tensors& predictions, int64_t max_samples) {
    EvalSamples samples{.columns = {"label", "twice"}, .rows = {}};
    for (int64_t i = 0; i < std::min(share.examples.size(), max_samples); ++i) {
      samples.rows.push_back(
          {absl::StrCat(share.labels[0].data<float>()[i]), absl::StrCat(predictions[0].data<float>()[2 * i])});
      samples.images.push_back(
          Tensor::Of<float>({1, 2, 1}, absl::MakeConstSpan(share.features[0].data<float>() + 2 * i, 2)));
    }
    return samples;
  };
  return model;
}

std::vector<tensorflow::Event> EvalEvents(const EstimatorConfig& config) {
  std::vector<tensorflow::Event> events;
  const std::string directory = config.model_dir + "/eval";
  const std::vector<std::string> names = files::ListDirectory(directory).value();
  for (const std::string& name : names) {
    const auto reader = data::TFRecordReader::Open(files::JoinPath(directory, name)).value();
    for (std::string record; reader->Next(&record).value();) REQUIRE(events.emplace_back().ParseFromString(record));
  }
  return events;
}

struct Shown {
  EvalResults results;
  Rows table;
  int tables = 0, images = 0;
};

// Trains two steps and evaluates `evaluations` times.
Shown Evaluate(int eval_samples, int num_replicas = 1, int evaluations = 1) {
  EstimatorConfig config = Config();
  config.eval_samples = eval_samples;
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  const auto estimator = Estimator::Create(LineWithSamples(), config, std::move(strategy)).value();
  REQUIRE(estimator->Train(Input(1), 2, {}).ok());
  Shown shown;
  for (int i = 0; i < evaluations; ++i) shown.results = estimator->Evaluate(Input(1), 5).value();
  for (const tensorflow::Event& event : EvalEvents(config)) {
    for (const tensorflow::Summary::Value& value : event.summary().value()) {
      if (value.has_image()) {
        CHECK(value.tag() == absl::StrCat("samples/image/", shown.images++));
      } else if (value.tag() == "samples/text_summary") {
        ++shown.tables;
        shown.table.clear();
        CHECK(event.step() == 2);
        const tensorflow::TensorProto& table = value.tensor();
        REQUIRE(table.tensor_shape().dim_size() == 2);
        REQUIRE(table.tensor_shape().dim(1).size() == 2);
        for (int cell = 0; cell < table.string_val_size(); cell += 2) {
          shown.table.push_back({table.string_val(cell), table.string_val(cell + 1)});
        }
        CHECK(table.tensor_shape().dim(0).size() == static_cast<int64_t>(shown.table.size()));
      }
    }
  }
  return shown;
}

TEST_CASE("Samples are the first examples of the evaluation, over as many batches as they need") {
  // Of batches of 4: feature 0 of example i is number 2i of 0, 1, 2, 0, 1, ..., and its label i modulo 2.
  const Shown shown = Evaluate(/*eval_samples=*/6);
  CHECK(shown.table ==
        Rows{{"label", "twice"}, {"0", "0"}, {"1", "4"}, {"0", "2"}, {"1", "0"}, {"0", "4"}, {"1", "2"}});
  CHECK(shown.images == 6);
  CHECK(Evaluate(/*eval_samples=*/100).table.size() == 21);  // all there are
}

TEST_CASE("With several replicas samples are those of the first") {
  CHECK(Evaluate(/*eval_samples=*/3, /*num_replicas=*/2).table ==
        Rows{{"label", "twice"}, {"0", "0"}, {"1", "4"}, {"0", "4"}});
}

TEST_CASE("Each evaluation writes a table, and the first one the images") {
  const Shown shown = Evaluate(/*eval_samples=*/2, /*num_replicas=*/1, /*evaluations=*/3);
  CHECK(shown.tables == 3);
  CHECK(shown.images == 2);
}

TEST_CASE("Samples leave the results as they are, and none are written with 0") {
  const Shown none = Evaluate(/*eval_samples=*/0), some = Evaluate(/*eval_samples=*/16);
  CHECK(none.results == some.results);
  CHECK(none.tables + none.images == 0);
  CHECK(some.tables == 1);
}

TEST_CASE("An evaluation without samples does not compute what they need") {
  const auto fetches = [](const Model& model) {
    const data::ElementSpec spec{.features = {{"", {compute::DType::kFloat32, {4, 2}}}},
                                 .labels = {{"", {compute::DType::kFloat32, {4}}}}};
    return BuildModel(model, Mode::kEval, compute::DType::kFloat32, spec)->fetch_names;
  };
  Model model = LineWithSamples();
  CHECK(fetches(model) == std::vector<std::string>{"loss", "twice"});
  model.eval_samples = nullptr;
  CHECK(fetches(model) == std::vector<std::string>{"loss"});
}

TEST_CASE("Long texts are cut after a whole character") {
  EvalSamples samples{.columns = {"text"}, .rows = {{std::string(1000, 'a')}, {std::string(999, 'a') + "\u00e9"}}};
  CutLongTexts(samples);
  CHECK(samples.rows[0][0] == std::string(1000, 'a'));
  CHECK(samples.rows[1][0] == std::string(999, 'a') + "\u2026");
}

TEST_CASE("Samples of classes: the class, the one predicted, and its probability") {
  const EvalSamplesFn samples_of = ClassSamples({1, 2, 1}, [](int64_t id) { return absl::StrCat("class ", id); });
  const BatchShare share{.examples = {0, 2},
                         .features = {Tensor::Of<float>({2, 2}, {0, 1, 2, 3})},
                         .labels = {Tensor::Of<int32_t>({2}, {2, 0})}};
  const data::Tensors predictions = {Tensor::Of<int64_t>({2}, {2, 1}),
                                     Tensor::Of<float>({2, 3}, {0.1f, 0.2f, 0.7f, 0.25f, 0.5f, 0.25f})};
  EvalSamples samples = samples_of(share, predictions, 5);
  CHECK(samples.columns == std::vector<std::string>{"class", "prediction", "probability"});
  CHECK(samples.rows == Rows{{"class 2", "class 2", "0.700"}, {"class 0", "class 1", "0.500"}});
  Append(samples_of(share, predictions, 1), samples);
  CHECK(samples.rows.size() == 3);
  const Tensor images = ImagesOf(samples);
  CHECK(images.shape() == compute::Shape({3, 1, 2, 1}));
  CHECK(images.flat<float>()[3] == 3);
  CHECK(images.flat<float>()[5] == 1);
}

TEST_CASE("Large images are shrunk by means of squares") {
  Tensor image(compute::DType::kFloat32, {1, 225 * 2});  // 225 x 2 pixels of 1 channel
  for (int i = 0; i < 450; ++i) image.data<float>()[i] = static_cast<float>(i);
  const BatchShare share{.examples = {0, 1}, .features = {image}, .labels = {Tensor::Of<int32_t>({1}, {0})}};
  const data::Tensors predictions = {Tensor::Of<int64_t>({1}, {0}), Tensor::Of<float>({1, 1}, {1})};
  const auto samples_of = [](const compute::Shape& shape) { return ClassSamples(shape, [](int64_t) { return "x"; }); };
  const Tensor narrow = samples_of({225, 2, 1})(share, predictions, 1).images.at(0);
  CHECK(narrow.shape() == compute::Shape({112, 1, 1}));
  CHECK(narrow.data<float>()[1] == (4 + 5 + 6 + 7) / 4.0f);
  const Tensor wide = samples_of({3, 150, 1})(share, predictions, 1).images.at(0);
  CHECK(wide.shape() == compute::Shape({1, 75, 1}));
  CHECK(wide.data<float>()[0] == (0 + 1 + 150 + 151) / 4.0f);
  CHECK(wide.data<float>()[74] == (148 + 149 + 298 + 299) / 4.0f);
}

}  // namespace
}  // namespace official::train
