// The input is the body of a predict request, for a model of an image and for one of a number and a text.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "official/serve/rest_api.h"
#include "utils/compute/core/check.h"
#include "utils/fuzzing/memory_file.h"

namespace {

using official::compute::DType;
using official::serve::Signature;

void Feed(absl::string_view body, const Signature& signature) {
  const auto request = official::serve::ParsePredict(body, signature);
  if (!request.ok()) {
    OFFICIAL_CHECK(absl::IsInvalidArgument(request.status())) << request.status();
    OFFICIAL_CHECK(nlohmann::json::accept(official::serve::ErrorResponse(request.status().message())));
    return;
  }
  OFFICIAL_CHECK(!request->examples.empty());
  for (const auto& example : request->examples) OFFICIAL_CHECK(example.size() == signature.inputs.size());
  // What was read can be written: inputs as if they were outputs.
  const Signature echo{signature.name, signature.inputs, signature.inputs};
  OFFICIAL_CHECK(nlohmann::json::accept(official::serve::PredictResponse(request->format, echo, request->examples)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view body = official::fuzzing::AsBytes(data, size);
  Feed(body, {"classify", {{"image", DType::kFloat32, {1, 2}}}, {}});
  Feed(body, {"predict", {{"user", DType::kInt32, {}}, {"text", {}, {}}}, {}});
  (void)official::serve::ParsePath(body);
  return 0;
}
