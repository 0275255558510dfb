#include "utils/distribute/cross_device_ops_summer.h"

#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

using compute::DType;
using compute::Tensor;

class CrossDeviceOpsSummer : public PackSummer {
 public:
  explicit CrossDeviceOpsSummer(std::shared_ptr<CrossDeviceOps> ops) : ops_(std::move(ops)) {}

  // The whole pack.
  int64_t Share(int64_t left) const override { return left; }

  absl::Status Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) override {
    std::vector<std::vector<Tensor>> values(buffers[0].size());
    for (const std::vector<Buffer>& of_device : buffers) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i].push_back(Tensor({DType::kFloat32, {of_device[i].elements}}, of_device[i].data));
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    ASSIGN_OR_RETURN(const std::vector<Tensor> sums, ops_->BatchReduce(ReduceOp::kSum, values));
    if (sums.size() != values.size()) {
      return absl::InvalidArgumentError(absl::StrCat("cross_device_ops have returned ", sums.size(),
                                                     " values for a batch of ", values.size(),
                                                     "; there must be one for each"));
    }
    for (size_t i = 0; i < sums.size(); ++i) RETURN_IF_ERROR(Give(sums[i], values[i]));
    return absl::OkStatus();
  }

 private:
  // Copies a sum to where the devices had their values.
  absl::Status Give(const Tensor& sum, const std::vector<Tensor>& values) {
    RETURN_IF_ERROR(CheckReduced(sum, values[0].type()));
    ASSIGN_OR_RETURN(const std::vector<Tensor> copies, ops_->Broadcast(sum, static_cast<int>(values.size())));
    if (copies.size() != values.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cross_device_ops have broadcast ", copies.size(), " values to ", values.size(), " replicas"));
    }
    for (size_t r = 0; r < values.size(); ++r) {
      RETURN_IF_ERROR(CheckReduced(copies[r], values[r].type()));
      if (copies[r].raw_data() == values[r].raw_data()) continue;
      std::memcpy(values[r].raw_data(), copies[r].raw_data(), values[r].num_bytes());
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<CrossDeviceOps> ops_;
  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<PackSummer> MakeCrossDeviceOpsSummer(std::shared_ptr<CrossDeviceOps> ops) {
  return std::make_unique<CrossDeviceOpsSummer>(std::move(ops));
}

}  // namespace official::distribute
