// How feeds and values are copied between the host and a device, or between two devices, on emulated devices.

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "utils/compute/cuda_emulation/grid.h"
#include "utils/compute/cuda_emulation/stream_work.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/peer_streams.h"

namespace official::compute {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST_CASE("Feeds of all sizes arrive, and small ones go in one copy") {
  struct Case {
    std::vector<int64_t> bytes;
    int64_t copies;  // of the feeds, which go through pieces of 4 MiB
  };
  const Case c = GENERATE(Case{{313600, 400, 24, 4}, 1}, Case{{0, 7}, 1}, Case{{4 * kMiB, 4}, 2},
                          Case{{4, 4 * kMiB}, 2}, Case{{4 * kMiB - 1, 1}, 2}, Case{{4 * kMiB - 512, 256, 300}, 2},
                          Case{{9 * kMiB, 4, 5 * kMiB + 1, 12}, 4});
  const std::unique_ptr<Device> device = MakeDevice(kCudaKind).value();
  const std::unique_ptr<FeedBuffers> feeds = device->MakeFeedBuffers(c.bytes).value();
  int64_t copies_of_a_fill = 0;
  for (int fill = 0; fill < 3; ++fill) {  // there are two landing places
    std::vector<std::vector<char>> values;
    std::vector<const void*> addresses;
    for (size_t i = 0; i < c.bytes.size(); ++i) {
      std::vector<char>& value = values.emplace_back(c.bytes[i]);
      for (size_t k = 0; k < value.size(); ++k) value[k] = static_cast<char>(k % 251 + 7 * i + fill);
      addresses.push_back(value.data());
    }
    const int64_t before = cuda_emulation::WorkGiven().copies;
    REQUIRE(feeds->Fill(addresses).ok());
    copies_of_a_fill = cuda_emulation::WorkGiven().copies - before;
    for (size_t i = 0; i < c.bytes.size(); ++i) {
      std::vector<char> arrived(c.bytes[i]);
      REQUIRE(device->CopyToHost(arrived.data(), feeds->data(static_cast<int>(i)), c.bytes[i]).ok());
      CHECK(arrived == values[i]);
    }
  }
  // Beside those of the feeds: to their place, and what earlier runs have reported.
  CHECK(copies_of_a_fill == c.copies + 2);
}

TEST_CASE("A HostBuffer holds the value of the time at which its copy began") {
  const std::unique_ptr<Device> device = MakeDevice(kCudaKind).value();
  const std::shared_ptr<void> value = device->Allocate(sizeof(int64_t)).value();
  std::vector<std::unique_ptr<HostBuffer>> buffers;
  for (int64_t i = 0; i < 4; ++i) {
    REQUIRE(device->CopyToDevice(value.get(), &i, sizeof(i)).ok());
    buffers.push_back(device->MakeHostBuffer(sizeof(i)).value());
    REQUIRE(buffers.back()->StartCopy(value.get()).ok());
  }
  for (int64_t i = 0; i < 4; ++i) {
    int64_t copied = -1;
    std::memcpy(&copied, buffers[i]->Wait().value(), sizeof(copied));
    CHECK(copied == i);
  }
  // It can be used again, and need not be waited for.
  REQUIRE(buffers[0]->StartCopy(value.get()).ok());
  int64_t copied = -1;
  std::memcpy(&copied, buffers[0]->Wait().value(), sizeof(copied));
  CHECK(copied == 3);
  REQUIRE(buffers[1]->StartCopy(value.get()).ok());
}

TEST_CASE("Devices copy to each other, also where no more peers may access their memory") {
  cuda_emulation::TheCard().max_peers = GENERATE(0, 8);
  std::vector<std::unique_ptr<Device>> owned;
  std::vector<Device*> devices;
  std::vector<float*> data;
  std::vector<std::shared_ptr<void>> memory;
  for (const int index : {0, 1}) {
    devices.push_back(owned.emplace_back(MakeDevice(kCudaKind, {.index = index}).value()).get());
    data.push_back(static_cast<float*>(memory.emplace_back(devices[index]->Allocate(sizeof(float)).value()).get()));
  }
  const auto made = FindDeviceKind(kCudaKind)->make_peer_streams(devices);
  INFO(made.status());
  REQUIRE(made.ok());
  PeerStreams& streams = **made;
  const float sent = 3;
  REQUIRE(devices[1]->CopyToDevice(data[1], &sent, sizeof(sent)).ok());
  for (const int rank : {0, 1}) {
    REQUIRE(streams.Mark(rank, 0).ok());
    REQUIRE(streams.WaitForMark(rank, 0).ok());
  }
  REQUIRE(streams.WaitForPeer(0, 1).ok());
  REQUIRE(streams.Copy(0, data[0], 1, data[1], 1).ok());
  REQUIRE(streams.Join(0).ok());
  float arrived = 0;
  REQUIRE(devices[0]->CopyToHost(&arrived, data[0], sizeof(arrived)).ok());
  CHECK(arrived == sent);
  cuda_emulation::TheCard() = {};
}

}  // namespace
}  // namespace official::compute
