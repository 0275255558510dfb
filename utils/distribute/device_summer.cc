#include "utils/distribute/device_summer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

class DeviceSummer : public PackSummer {
 public:
  DeviceSummer(std::unique_ptr<compute::PeerStreams> streams, int64_t chunk_elements)
      : streams_(std::move(streams)), chunk_elements_(chunk_elements) {}
  absl::Status Init(absl::Span<compute::Device* const> devices, SumOrder order);

  absl::Status Give(int rank, int pack) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return streams_->Mark(rank, pack);
  }
  int64_t Share(int64_t left) const override { return left; }
  absl::Status Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) override;
  absl::Status Take(int rank) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return streams_->Join(rank);
  }

 private:
  struct PlacedPlan {
    SumPlan plan;
    std::vector<float*> scratch;  // memory of plan.scratch, chunk_elements_ each
  };
  // A piece of a chunk that lies in one buffer.
  struct Piece {
    size_t buffer;
    int64_t begin, elements;
    int64_t in_chunk;  // where it begins in scratch memory
  };

  absl::Status SumChunk(const PlacedPlan& placed, absl::Span<const std::vector<Buffer>> buffers);

  std::vector<std::shared_ptr<void>> memory_;  // of all scratch places; outlives the streams
  std::mutex mutex_;                           // of what follows: one pack is given to the streams at a time
  const std::unique_ptr<compute::PeerStreams> streams_;
  const int64_t chunk_elements_;
  std::vector<PlacedPlan> plans_;  // by the pack's number, which repeats them
  std::vector<Piece> chunk_;
};

absl::Status DeviceSummer::Init(absl::Span<compute::Device* const> devices, SumOrder order) {
  const int num_devices = static_cast<int>(devices.size());
  std::vector<std::vector<float*>> of_device(num_devices);  // shared by the plans
  for (int pack = 0; pack < num_devices; ++pack) {
    PlacedPlan placed{PlanSum(order, num_devices, pack), {}};
    std::vector<size_t> used(num_devices);
    for (const int d : placed.plan.scratch) {
      if (used[d] == of_device[d].size()) {
        ASSIGN_OR_RETURN(std::shared_ptr<void> memory,
                         devices[d]->Allocate(chunk_elements_ * static_cast<int64_t>(sizeof(float))));
        of_device[d].push_back(static_cast<float*>(memory.get()));
        memory_.push_back(std::move(memory));
      }
      placed.scratch.push_back(of_device[d][used[d]++]);
    }
    plans_.push_back(std::move(placed));
  }
  // The memory is ready before another stream writes to it.
  for (compute::Device* const device : devices) RETURN_IF_ERROR(device->Synchronize());
  return absl::OkStatus();
}

absl::Status DeviceSummer::Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const PlacedPlan& placed = plans_[pack % plans_.size()];
  for (int d = 0; d < placed.plan.num_devices; ++d) RETURN_IF_ERROR(streams_->WaitForMark(d, pack));
  int64_t in_chunk = 0;
  chunk_.clear();
  for (size_t b = 0; b < buffers[0].size() && begin < end; ++b) {
    const int64_t elements = buffers[0][b].elements;
    for (int64_t i = begin; i < std::min(end, elements);) {
      const int64_t n = std::min({chunk_elements_ - in_chunk, end - i, elements - i});
      chunk_.push_back({b, i, n, in_chunk});
      i += n;
      in_chunk += n;
      if (in_chunk < chunk_elements_) continue;
      RETURN_IF_ERROR(SumChunk(placed, buffers));
      chunk_.clear();
      in_chunk = 0;
    }
    begin = std::max<int64_t>(0, begin - elements);
    end -= elements;
  }
  return chunk_.empty() ? absl::OkStatus() : SumChunk(placed, buffers);
}

absl::Status DeviceSummer::SumChunk(const PlacedPlan& placed, absl::Span<const std::vector<Buffer>> buffers) {
  const SumPlan& plan = placed.plan;
  // No stream writes to scratch memory that another still reads for the chunk before. Within a chunk each place is
  // written by its device's stream alone, and by no step that does not follow from those that read it.
  for (int a = 0; a < plan.num_devices; ++a) {
    for (int b = 0; b < plan.num_devices; ++b) {
      if (a != b) RETURN_IF_ERROR(streams_->WaitForPeer(a, b));
    }
  }
  const auto address = [&](int place, const Piece& piece) {
    return place < plan.num_devices ? buffers[place][piece.buffer].data + piece.begin
                                    : placed.scratch[place - plan.num_devices] + piece.in_chunk;
  };
  for (const SumPlan::Step& step : plan.steps) {
    const int to = plan.DeviceOf(step.to), from = plan.DeviceOf(step.from);
    if (to != from) RETURN_IF_ERROR(streams_->WaitForPeer(to, from));
    for (const Piece& piece : chunk_) {
      float *const target = address(step.to, piece), *const source = address(step.from, piece);
      RETURN_IF_ERROR(step.adds ? streams_->Add(to, target, source, piece.elements)
                                : streams_->Copy(to, target, from, source, piece.elements));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackSummer>> MakeDeviceSummer(absl::Span<compute::Device* const> devices,
                                                             std::unique_ptr<compute::PeerStreams> streams,
                                                             SumOrder order, int64_t chunk_elements) {
  auto summer = std::make_unique<DeviceSummer>(std::move(streams), chunk_elements);
  RETURN_IF_ERROR(summer->Init(devices, order));
  return summer;
}

}  // namespace official::distribute
