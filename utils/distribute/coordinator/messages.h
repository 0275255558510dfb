// The messages between the coordinator and a worker: requests, each of which has an answer, and at the end kEnd.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/distribute/exchange.h"

namespace official::coordinator {

// The channel carries the messages in both directions.
inline constexpr distribute::Exchange::Channel kChannel = distribute::Exchange::Channel::kSums;

// From the coordinator: there are no more requests.
inline constexpr absl::string_view kEnd = "E";

struct WorkerRequest {
  enum class Kind : char {
    kRun = 'R',          // runs the function `name` with the arguments, and returns its results
    kMakeDataset = 'D',  // makes the data set `name`
    kMakeValues = 'V'    // runs the function, and keeps its results
  };
  Kind kind = Kind::kRun;
  std::string name;
  std::vector<compute::Tensor> arguments = {};
};
// The results, or the error of the function.
using WorkerAnswer = absl::StatusOr<std::vector<compute::Tensor>>;

std::string PackRequest(const WorkerRequest& request);
std::string PackAnswer(const WorkerAnswer& answer);
// DataLoss for bytes that are none.
absl::StatusOr<WorkerRequest> UnpackRequest(absl::string_view bytes);
WorkerAnswer UnpackAnswer(std::string bytes);

}  // namespace official::coordinator
