// EstimatorServable: a servable that an Estimator computes, one tensor in and the model's predictions out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "official/serve/servable/servable.h"
#include "utils/train/estimator.h"

namespace official::serve {

// The values that a pixel may have.
struct PixelRange {
  float min = 0, max = 0;
  std::string text;  // "grey values are from 0 (background) to 1", for messages
};

class EstimatorServable : public Servable {
 public:
  // Reads an image file in place of an input; InvalidArgument if the bytes are none.
  using DecodeFile = std::function<absl::StatusOr<compute::Tensor>(const std::string& bytes)>;

  // `signature` has one input, float32 pixels in `range`, whose values are those of the model's only feature, and the
  // model's predictions as outputs; `spec` is that of the feature.
  EstimatorServable(Signature signature, data::ElementSpec spec, std::unique_ptr<train::Estimator> estimator,
                    DecodeFile decode_file, PixelRange range)
      : signature_(std::move(signature)),
        spec_(std::move(spec)),
        estimator_(std::move(estimator)),
        version_(estimator_->global_step()),
        decode_file_(std::move(decode_file)),
        range_(std::move(range)) {}

  const Signature& signature() const override { return signature_; }
  int64_t version() const override { return version_; }
  absl::StatusOr<Values> Prepare(Values example) const override;
  absl::StatusOr<std::vector<Values>> Run(absl::Span<const Values> examples) override;

 private:
  const Signature signature_;
  const data::ElementSpec spec_;
  const std::unique_ptr<train::Estimator> estimator_;
  const int64_t version_;
  const DecodeFile decode_file_;
  const PixelRange range_;
};

}  // namespace official::serve
