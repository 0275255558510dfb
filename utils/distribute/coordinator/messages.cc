#include "utils/distribute/coordinator/messages.h"

#include <utility>

#include "utils/compute/core/status.h"
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

std::string Pack(const WorkerRequest& request) {
  std::string bytes;
  distribute::AppendNumber(request.number, bytes);
  distribute::AppendNumber(static_cast<int64_t>(request.kind), bytes);
  distribute::AppendText(request.name, bytes);
  for (const Tensor& argument : request.arguments) distribute::AppendTensor(argument, bytes);
  return bytes;
}

std::string Pack(const WorkerAnswer& answer) {
  std::string bytes;
  const absl::Status status = answer.results.status();
  distribute::AppendNumber(answer.number, bytes);
  distribute::AppendNumber(static_cast<int64_t>(status.code()), bytes);
  distribute::AppendText(absl::string_view(status.message().data(), status.message().size()), bytes);
  if (!status.ok()) return bytes;
  for (const Tensor& result : *answer.results) distribute::AppendTensor(result, bytes);
  return bytes;
}

absl::StatusOr<WorkerRequest> UnpackRequest(absl::string_view bytes) {
  WorkerRequest request;
  ASSIGN_OR_RETURN(request.number, distribute::TakeNumber(bytes));
  ASSIGN_OR_RETURN(const int64_t kind, distribute::TakeNumber(bytes));
  request.kind = static_cast<WorkerRequest::Kind>(kind);
  ASSIGN_OR_RETURN(request.name, distribute::TakeText(bytes));
  ASSIGN_OR_RETURN(request.arguments, TakeTensors(bytes));
  return request;
}

absl::StatusOr<WorkerAnswer> UnpackAnswer(absl::string_view bytes) {
  WorkerAnswer answer;
  ASSIGN_OR_RETURN(answer.number, distribute::TakeNumber(bytes));
  ASSIGN_OR_RETURN(const int64_t code, distribute::TakeNumber(bytes));
  ASSIGN_OR_RETURN(const std::string message, distribute::TakeText(bytes));
  if (code != 0) {
    answer.results = absl::Status(static_cast<absl::StatusCode>(code), message);
    return answer;
  }
  ASSIGN_OR_RETURN(answer.results, TakeTensors(bytes));
  return answer;
}

}  // namespace official::coordinator
