#include "utils/data/dataset.h"

#include <cstring>
#include <utility>

#include "absl/types/span.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/data/free_list.h"
#include "utils/data/permutation.h"

namespace official::data {
namespace {

using compute::Shape;
using compute::Tensor;

class SlicesDataset : public Dataset {
 public:
  SlicesDataset(std::vector<NamedTensor> features, std::vector<NamedTensor> labels) {
    OFFICIAL_CHECK(!features.empty()) << "a data set without features";
    OFFICIAL_CHECK(features[0].tensor.shape().rank() > 0) << "a scalar has no rows";
    num_examples_ = features[0].tensor.shape().dim(0);
    Add(std::move(features), spec_.features, features_);
    Add(std::move(labels), spec_.labels, labels_);
  }
  const ElementSpec& spec() const override { return spec_; }
  int64_t num_examples() const override { return num_examples_; }

  absl::Status Read(int64_t epoch, int64_t index, const Example& out) const override {
    CopyRows(features_, index, out.features);
    CopyRows(labels_, index, out.labels);
    return absl::OkStatus();
  }

 private:
  void Add(std::vector<NamedTensor> group, std::vector<Leaf>& leaves, std::vector<Tensor>& tensors) {
    for (NamedTensor& member : group) {
      const Shape& shape = member.tensor.shape();
      OFFICIAL_CHECK(shape.rank() > 0 && shape.dim(0) == num_examples_)
          << member.name << " is " << member.tensor.type().ToString() << " in a data set of " << num_examples_
          << " examples";
      leaves.push_back({std::move(member.name), {member.tensor.dtype(), Shape(shape.dims().subspan(1))}});
      tensors.push_back(std::move(member.tensor));
    }
  }
  static void CopyRows(const std::vector<Tensor>& from, int64_t index, const Tensors& out) {
    for (size_t i = 0; i < from.size(); ++i) {
      const int64_t row_bytes = out[i].num_bytes();
      std::memcpy(out[i].raw_data(), static_cast<const char*>(from[i].raw_data()) + index * row_bytes, row_bytes);
    }
  }

  ElementSpec spec_;
  int64_t num_examples_;
  std::vector<Tensor> features_, labels_;
};

class MapDataset : public Dataset {
 public:
  MapDataset(DatasetPtr input, ElementSpec spec, uint64_t seed, MapFn fn)
      : input_(std::move(input)), spec_(std::move(spec)), seed_(seed), fn_(std::move(fn)) {}
  const ElementSpec& spec() const override { return spec_; }
  int64_t num_examples() const override { return input_->num_examples(); }

  absl::Status Read(int64_t epoch, int64_t index, const Example& out) const override {
    std::unique_ptr<Example> in = scratch_.Take();
    if (in == nullptr) in = std::make_unique<Example>(MakeExample(input_->spec()));
    absl::Status status = input_->Read(epoch, index, *in);
    if (status.ok()) {
      Random random(seed_, epoch, index);
      status = fn_(*in, random, out);
    }
    scratch_.GiveBack(std::move(in));
    return status;
  }
  DatasetPtr input() const override { return input_; }
  DatasetPtr WithInput(DatasetPtr input) const override { return Map(std::move(input), spec_, seed_, fn_); }

 private:
  DatasetPtr input_;
  ElementSpec spec_;
  uint64_t seed_;
  MapFn fn_;
  mutable FreeList<Example> scratch_;
};

class ShuffledDataset : public Dataset {
 public:
  ShuffledDataset(DatasetPtr input, uint64_t seed) : input_(std::move(input)), seed_(seed) {}
  const ElementSpec& spec() const override { return input_->spec(); }
  int64_t num_examples() const override { return input_->num_examples(); }

  absl::Status Read(int64_t epoch, int64_t index, const Example& out) const override {
    const Permutation order(input_->num_examples(), seed_, epoch);
    return input_->Read(epoch, order(index), out);
  }
  DatasetPtr input() const override { return input_; }
  DatasetPtr WithInput(DatasetPtr input) const override { return Shuffle(std::move(input), seed_); }

 private:
  DatasetPtr input_;
  uint64_t seed_;
};

}  // namespace

Example MakeExample(const ElementSpec& spec) {
  Example example;
  for (const Leaf& leaf : spec.features) example.features.emplace_back(leaf.type);
  for (const Leaf& leaf : spec.labels) example.labels.emplace_back(leaf.type);
  return example;
}

DatasetPtr TensorSlices(std::vector<NamedTensor> features, std::vector<NamedTensor> labels) {
  return std::make_shared<SlicesDataset>(std::move(features), std::move(labels));
}

DatasetPtr Map(DatasetPtr input, ElementSpec spec, uint64_t seed, MapFn fn) {
  return std::make_shared<MapDataset>(std::move(input), std::move(spec), seed, std::move(fn));
}

DatasetPtr Shuffle(DatasetPtr input, uint64_t seed) {
  return std::make_shared<ShuffledDataset>(std::move(input), seed);
}

}  // namespace official::data
