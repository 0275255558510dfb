// The texts of TensorFlow Serving's REST API: paths, bodies of requests and of responses.
// Source: tensorflow.org/tfx/serving/api_rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "official/serve/servable/servable.h"

namespace official::serve {

enum class Method { kStatus, kMetadata, kPredict };

// /v1/models/NAME[/versions/N][/metadata|:predict]
struct Path {
  std::string model;
  std::optional<int64_t> version;
  Method method = Method::kStatus;
};

// Returns nothing for a path of another form. What follows a question mark is not looked at, nor is the host of a
// target in absolute form, http://HOST/v1/... (RFC 9112, 3.2.2).
std::optional<Path> ParsePath(absl::string_view target);

// The format of a request, which its response has, too: {"instances": [...]} is answered by {"predictions": [...]},
// {"inputs": ...} by {"outputs": ...}.
enum class Format { kRow, kColumn };

struct PredictRequest {
  Format format = Format::kRow;
  std::vector<Values> examples;  // at least one
};

// The most examples of a request.
inline constexpr size_t kMaxExamples = 10000;

// Reads the body of a predict request. InvalidArgument, naming the place in the body, for text that is not JSON or is
// nested more than 64 deep, missing or unknown keys, another signature_name, no example or more than kMaxExamples,
// and values that the signature does not have.
absl::StatusOr<PredictRequest> ParsePredict(absl::string_view body, const Signature& signature);

std::string PredictResponse(Format format, const Signature& signature, absl::Span<const Values> predictions);
std::string StatusResponse(int64_t version);
std::string MetadataResponse(absl::string_view model, int64_t version, const Signature& signature);
std::string ErrorResponse(absl::string_view message);

// The message of the DeadlineExceeded error, or of status 504, of a request that has had no answer in time.
inline constexpr char kTooLate[] = "the request has waited for --rest_api_timeout_in_ms";

// Returns the HTTP status for an error, TensorFlow Serving's: InvalidArgument 400, NotFound 404, Unavailable 503,
// DeadlineExceeded 504, all others 500.
int HttpStatus(const absl::Status& status);

}  // namespace official::serve
