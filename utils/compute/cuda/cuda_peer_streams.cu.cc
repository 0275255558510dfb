#include "utils/compute/cuda/cuda_peer_streams.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/stream.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) AddTo(float* to, const float* from, int64_t elements) {
  const auto i = ThreadIndex<int64_t>();
  if (i < elements) to[i] += from[i];
}

class CudaPeerStreams : public PeerStreams {
 public:
  ~CudaPeerStreams() override {
    for (Peer& peer : peers_) {
      peer.device->MakeCurrent();
      if (peer.stream != nullptr) cudaStreamSynchronize(peer.stream.get());
      peer = {peer.device, {}, {}, {}};
    }
  }
  absl::Status Init(absl::Span<Device* const> devices);

  absl::Status Mark(int rank, int mark) override {
    Peer& peer = peers_[rank];
    peer.device->MakeCurrent();
    while (static_cast<int>(peer.marks.size()) <= mark) {
      ASSIGN_OR_RETURN(CudaEvent event, MakeEvent());
      peer.marks.push_back(std::move(event));
    }
    return CudaStatus(cudaEventRecord(peer.marks[mark].get(), peer.device->stream()), "cudaEventRecord");
  }
  absl::Status WaitForMark(int rank, int mark) override {
    const Peer& peer = peers_[rank];
    peer.device->MakeCurrent();
    return CudaStatus(cudaStreamWaitEvent(peer.stream.get(), peer.marks[mark].get(), 0), "cudaStreamWaitEvent");
  }
  absl::Status WaitForPeer(int rank, int other) override { return WaitForStream(peers_[rank].stream.get(), other); }
  absl::Status Copy(int rank, float* to, int from_rank, const float* from, int64_t elements) override {
    const Peer& peer = peers_[rank];
    const int to_device = peer.device->ordinal(), from_device = peers_[from_rank].device->ordinal();
    const size_t bytes = elements * sizeof(float);
    peer.device->MakeCurrent();
    return to_device == from_device
               ? CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, peer.stream.get()),
                            "cudaMemcpyAsync")
               : CudaStatus(cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, peer.stream.get()),
                            "cudaMemcpyPeerAsync");
  }
  absl::Status Add(int rank, float* to, const float* from, int64_t elements) override {
    const Peer& peer = peers_[rank];
    peer.device->MakeCurrent();
    Launch(AddTo, NumBlocks(elements, kThreads), kThreads, 0, peer.stream.get(), to, from, elements);
    return LaunchStatus("AddTo");
  }
  absl::Status Join(int rank) override {
    for (int other = 0; other < static_cast<int>(peers_.size()); ++other) {
      RETURN_IF_ERROR(WaitForStream(peers_[rank].device->stream(), other));
    }
    peers_[rank].device->MakeCurrent();
    return absl::OkStatus();
  }

 private:
  struct Peer {
    CudaDevice* device;
    CudaStream stream;
    CudaEvent reached;             // on the stream
    std::vector<CudaEvent> marks;  // on the device's stream
  };

  absl::Status WaitForStream(cudaStream_t stream, int other) {
    const Peer& peer = peers_[other];
    peer.device->MakeCurrent();
    return WaitFor(stream, peer.stream.get(), peer.reached);
  }

  std::vector<Peer> peers_;
};

absl::Status CudaPeerStreams::Init(absl::Span<Device* const> devices) {
  for (Device* const device : devices) {
    peers_.push_back({static_cast<CudaDevice*>(device), {}, {}, {}});
    Peer& peer = peers_.back();
    peer.device->MakeCurrent();
    ASSIGN_OR_RETURN(peer.stream, MakeUrgentStream());
    ASSIGN_OR_RETURN(peer.reached, MakeEvent());
  }
  // Where a GPU cannot reach another's memory, or reaches that of as many as it can, copies go through the host's.
  for (const Peer& to : peers_) {
    to.device->MakeCurrent();
    for (const Peer& from : peers_) {
      int can = 0;
      if (to.device->ordinal() == from.device->ordinal()) continue;
      RETURN_IF_ERROR(CudaStatus(cudaDeviceCanAccessPeer(&can, to.device->ordinal(), from.device->ordinal()),
                                 "cudaDeviceCanAccessPeer"));
      if (!can) continue;
      const cudaError_t error = cudaDeviceEnablePeerAccess(from.device->ordinal(), 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled || error == cudaErrorTooManyPeers) {
        cudaGetLastError();  // or it would be the next launch's
      } else {
        RETURN_IF_ERROR(CudaStatus(error, "cudaDeviceEnablePeerAccess"));
      }
    }
  }
  peers_[0].device->MakeCurrent();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerStreams>> MakeCudaPeerStreams(absl::Span<Device* const> devices) {
  auto streams = std::make_unique<CudaPeerStreams>();
  RETURN_IF_ERROR(streams->Init(devices));
  return streams;
}

}  // namespace official::compute
