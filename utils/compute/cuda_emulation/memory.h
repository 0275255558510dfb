// The memory of the emulated devices. Buffers lie apart from each other in one region of addresses, and what is between
// them belongs to nobody. The emulation knows of every byte whether it was written, and who has written and read it
// last, so that it can tell reads of what nobody wrote and accesses of two threads that nothing orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace official::compute::cuda_emulation {

// True if the compiler puts calls before the accesses of kernels (access_hooks.cc). Under a sanitizer of the host it
// does not. The address sanitizer itself then ends the program at an access outside of buffers, since all around them
// is poisoned; reads of what nobody wrote and races are left to the builds that watch: memory counts as written.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kAccessesAreWatched = false;
#else
inline constexpr bool kAccessesAreWatched = true;
#endif

inline constexpr int kMaxDevices = 4;
// The bytes of each device; they follow each other. The sanitizer takes memory for what is poisoned, an eighth.
inline constexpr size_t kDeviceBytes = size_t{kAccessesAreWatched ? 16 : 1} << 30;
inline constexpr size_t kRegionBytes = kMaxDevices * kDeviceBytes;
// The first part of the region is the shared memory of the running block.
inline constexpr size_t kSharedBytes = 256 << 10;

enum class ByteState : uint8_t { kOutside = 0, kUnwritten = 1, kWritten = 2 };

// Who has accessed a byte: the interval, a number that grows with each launch, block and barrier, and the thread of the
// block, or one of the codes below. 0 is nobody.
using Access = uint32_t;
inline constexpr int kThreadBits = 11;
inline constexpr uint32_t kMaxInterval = (1u << (32 - kThreadBits)) - 1;
// Several threads of a warp have read: the code and the warp's number. Several of the block have, or atomically.
inline constexpr uint32_t kWarpCode = 1024, kSeveralCode = 2045, kAtomicCode = 2046;

struct Region {
  char* begin = nullptr;
  ByteState* states = nullptr;  // of each byte
  Access *writers = nullptr, *readers = nullptr;

  bool Contains(const void* address) const { return Offset(address) < kRegionBytes; }
  size_t Offset(const void* address) const {
    return static_cast<size_t>(reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(begin));
  }
};
const Region& DeviceRegion();

// The device whose memory it is; -1 for the host's.
int DeviceOf(const void* address);

// A buffer of unwritten memory of the device, or nullptr if there is no more.
void* NewBuffer(size_t bytes, int device);
// False if no buffer begins there.
bool DeleteBuffer(void* data);
// The same of pinned memory of the host, whose accesses are not watched.
void* NewPinned(size_t bytes);
bool DeletePinned(void* data);
bool IsPinned(const void* address);
size_t FreeBytes(int device);

// Sets the state of the bytes. Memory that becomes unwritten holds kPoison, in each byte.
void SetState(void* data, size_t bytes, ByteState state);
uint8_t Poison();
void SetPoison(uint8_t poison);
// Forgets who accessed which byte.
void ForgetAccesses();

// These return what is wrong with bytes that the host's side (a copy, a library) is about to read or write, which the
// caller then does; nothing if all is well. They take memory outside the region as the host's.
std::optional<std::string> CheckRead(const void* data, size_t bytes);
std::optional<std::string> CheckWrite(void* data, size_t bytes);  // makes them written
// Makes bytes as written or unwritten as those that they are a copy of. The host may copy unwritten bytes, which are
// the poison: after an error of the data it does.
std::optional<std::string> CheckCopy(void* to, const void* from, size_t bytes);

// "8 bytes behind a buffer of 400 bytes".
std::string DescribeAddress(const void* address);

}  // namespace official::compute::cuda_emulation
