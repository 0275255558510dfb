#include "utils/distribute/coordinator/messages.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/result_bytes.h"
#include "utils/distribute/tensor_bytes.h"

namespace official::coordinator {
namespace {

using compute::Tensor;

absl::StatusOr<std::vector<Tensor>> TakeTensors(absl::string_view bytes) {
  std::vector<Tensor> tensors;
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(Tensor tensor, distribute::TakeTensor(bytes));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

std::string PackRequest(const WorkerRequest& request) {
  std::string bytes;
  distribute::AppendNumber(static_cast<int64_t>(request.kind), bytes);
  distribute::AppendText(request.name, bytes);
  for (const Tensor& argument : request.arguments) distribute::AppendTensor(argument, bytes);
  return bytes;
}

std::string PackAnswer(const WorkerAnswer& answer) {
  absl::StatusOr<std::string> bytes = "";
  if (!answer.ok()) {
    bytes = answer.status();
  } else {
    for (const Tensor& result : *answer) distribute::AppendTensor(result, *bytes);
  }
  return absl::StrJoin(distribute::PackResult(bytes), "");
}

absl::StatusOr<WorkerRequest> UnpackRequest(absl::string_view bytes) {
  WorkerRequest request;
  ASSIGN_OR_RETURN(const int64_t kind, distribute::TakeNumber(bytes));
  using Kind = WorkerRequest::Kind;
  request.kind = static_cast<Kind>(kind);
  if (request.kind != Kind::kRun && request.kind != Kind::kMakeDataset && request.kind != Kind::kMakeValues) {
    return absl::DataLossError("a message of the coordinator is no request");
  }
  ASSIGN_OR_RETURN(request.name, distribute::TakeText(bytes));
  ASSIGN_OR_RETURN(request.arguments, TakeTensors(bytes));
  return request;
}

WorkerAnswer UnpackAnswer(std::string bytes) {
  ASSIGN_OR_RETURN(const std::string results, distribute::UnpackResult(std::move(bytes)));
  return TakeTensors(results);
}

}  // namespace official::coordinator
