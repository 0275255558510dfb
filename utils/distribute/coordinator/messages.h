// What the coordinator and a worker send each other. The worker begins with kHello, also when it has come back. Then
// each request has an answer; each has a number, so that a request of before the loss is not answered after it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/distribute/exchange.h"

namespace official::coordinator {

// Of the messages in both directions.
inline constexpr distribute::Exchange::Channel kChannel = distribute::Exchange::Channel::kSums;

inline constexpr absl::string_view kHello = "H", kEnd = "E";

struct WorkerRequest {
  enum class Kind : char {
    kRun = 'R',          // runs the function `name` with the arguments, and returns its results
    kMakeDataset = 'D',  // makes the data set `name`
    kMakeValues = 'V'    // runs the function, and keeps its results
  };
  int64_t number = 0;
  Kind kind = Kind::kRun;
  std::string name;
  std::vector<compute::Tensor> arguments = {};
};
struct WorkerAnswer {
  int64_t number = 0;  // of the request
  absl::StatusOr<std::vector<compute::Tensor>> results;
};

std::string Pack(const WorkerRequest& request);
std::string Pack(const WorkerAnswer& answer);
// DataLoss for bytes that are none.
absl::StatusOr<WorkerRequest> UnpackRequest(absl::string_view bytes);
absl::StatusOr<WorkerAnswer> UnpackAnswer(absl::string_view bytes);

}  // namespace official::coordinator
