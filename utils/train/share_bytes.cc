#include "utils/train/share_bytes.h"

#include "utils/compute/core/status.h"
#include "utils/distribute/tensor_bytes.h"

namespace official::train {
namespace {

using compute::Tensor;

void AppendTensors(const data::Tensors& tensors, std::string& bytes) {
  distribute::AppendNumber(static_cast<int64_t>(tensors.size()), bytes);
  for (const Tensor& tensor : tensors) distribute::AppendTensor(tensor, bytes);
}

// Takes what AppendTensors has written from the beginning of `bytes`.
absl::StatusOr<data::Tensors> TakeTensors(absl::string_view& bytes) {
  ASSIGN_OR_RETURN(const int64_t count, distribute::TakeNumber(bytes));
  data::Tensors tensors;
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(Tensor tensor, distribute::TakeTensor(bytes));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

std::string BytesOf(const std::vector<ShareResults>& results) {
  std::string bytes;
  for (const ShareResults& of_share : results) {
    AppendTensors(of_share.labels, bytes);
    AppendTensors(of_share.predictions, bytes);
  }
  return bytes;
}

absl::StatusOr<std::vector<ShareResults>> ShareResultsFrom(absl::string_view bytes) {
  std::vector<ShareResults> results;
  while (!bytes.empty()) {
    ShareResults& of_share = results.emplace_back();
    ASSIGN_OR_RETURN(of_share.labels, TakeTensors(bytes));
    ASSIGN_OR_RETURN(of_share.predictions, TakeTensors(bytes));
  }
  return results;
}

}  // namespace official::train
