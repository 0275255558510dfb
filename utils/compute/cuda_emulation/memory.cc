#include "utils/compute/cuda_emulation/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/compute/cuda_emulation/stream_work.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace official::compute::cuda_emulation {
namespace {

constexpr size_t kAlignment = 256;  // of buffers, as cudaMalloc's
constexpr size_t kGap = 4096;       // at least, between them
constexpr size_t kPage = 4096;

void* Reserve(size_t bytes) {
  void* const p =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
  if (p == MAP_FAILED) {
    std::perror("no addresses for emulated devices");
    std::abort();
  }
  return p;
}

Region MakeRegion() {
  Region region;
  region.begin = static_cast<char*>(Reserve(kRegionBytes));
  region.states = static_cast<ByteState*>(Reserve(kRegionBytes));
  region.writers = static_cast<Access*>(Reserve(kRegionBytes * sizeof(Access)));
  region.readers = static_cast<Access*>(Reserve(kRegionBytes * sizeof(Access)));
  ASAN_POISON_MEMORY_REGION(region.begin, kRegionBytes);
  return region;
}

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Makes the bytes zero; whole pages of large ones go back to the system.
void Clear(void* data, size_t bytes) {
  constexpr size_t kLarge = 16 * kPage;
  char* const end = static_cast<char*>(data) + bytes;
  if (bytes < kLarge) {
    std::memset(data, 0, bytes);
    return;
  }
  auto* const first_page = reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(data), kPage));
  auto* const last_page = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(end) / kPage * kPage);
  std::memset(data, 0, first_page - static_cast<char*>(data));
  std::memset(last_page, 0, end - last_page);
  madvise(first_page, last_page - first_page, MADV_DONTNEED);
}

// Where the buffers of a device begin, in the region.
size_t FirstPlace(int device) { return device * kDeviceBytes + kSharedBytes + kGap; }

struct Buffers {
  std::mutex mutex;
  std::map<size_t, size_t> sizes;  // of buffers, by their offsets in the region
  // By device: where to look for room first, and the number of bytes in use.
  std::array<size_t, kMaxDevices> next = {}, used = {};
};
Buffers& AllBuffers() {
  static auto* const buffers = new Buffers;
  return *buffers;
}

// The first place from `from` on, below `end`, with room for a buffer; 0 if there is none.
size_t FindPlace(const std::map<size_t, size_t>& sizes, size_t from, size_t end, size_t bytes) {
  for (auto it = sizes.lower_bound(from);; ++it) {
    const size_t limit = it == sizes.end() ? end : std::min(end, it->first);
    if (from + bytes + kGap <= limit) return from;
    if (limit == end) return 0;
    from = RoundUp(it->first + it->second + kGap, kAlignment);
  }
}

uint8_t poison = 0xff;

}  // namespace

const Region& DeviceRegion() {
  static const Region region = MakeRegion();
  return region;
}

int DeviceOf(const void* address) {
  const size_t offset = DeviceRegion().Offset(address);
  return offset < kRegionBytes ? static_cast<int>(offset / kDeviceBytes) : -1;
}

void* NewBuffer(size_t bytes, int device) {
  const Region& region = DeviceRegion();
  Buffers& buffers = AllBuffers();
  const std::lock_guard<std::mutex> lock(buffers.mutex);
  const size_t first = FirstPlace(device), end = (device + 1) * kDeviceBytes;
  const size_t next = std::max(first, buffers.next[device]);
  size_t place = FindPlace(buffers.sizes, next, end, bytes);
  if (place == 0) place = FindPlace(buffers.sizes, first, next, bytes);
  if (place == 0) return nullptr;
  buffers.sizes[place] = bytes;
  buffers.next[device] = RoundUp(place + bytes + kGap, kAlignment);
  buffers.used[device] += bytes;
  if (DoesWork()) SetState(region.begin + place, bytes, ByteState::kUnwritten);
  return region.begin + place;
}

bool DeleteBuffer(void* data) {
  const Region& region = DeviceRegion();
  Buffers& buffers = AllBuffers();
  const std::lock_guard<std::mutex> lock(buffers.mutex);
  const auto it = buffers.sizes.find(region.Offset(data));
  if (it == buffers.sizes.end()) return false;
  const auto [place, bytes] = *it;
  Clear(data, bytes);
  Clear(region.states + place, bytes);
  Clear(region.writers + place, bytes * sizeof(Access));
  Clear(region.readers + place, bytes * sizeof(Access));
  ASAN_POISON_MEMORY_REGION(data, bytes);
  buffers.used[place / kDeviceBytes] -= bytes;
  buffers.sizes.erase(it);
  return true;
}

namespace {

struct Pinned {
  std::mutex mutex;
  std::map<uintptr_t, size_t> sizes;  // by address
};
Pinned& AllPinned() {
  static auto* const pinned = new Pinned;
  return *pinned;
}

}  // namespace

void* NewPinned(size_t bytes) {
  void* const data = std::aligned_alloc(kAlignment, RoundUp(std::max<size_t>(bytes, 1), kAlignment));
  if (data == nullptr) return nullptr;
  const std::lock_guard<std::mutex> lock(AllPinned().mutex);
  AllPinned().sizes[reinterpret_cast<uintptr_t>(data)] = bytes;
  return data;
}

bool DeletePinned(void* data) {
  const std::lock_guard<std::mutex> lock(AllPinned().mutex);
  if (AllPinned().sizes.erase(reinterpret_cast<uintptr_t>(data)) == 0) return false;
  std::free(data);
  return true;
}

bool IsPinned(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard<std::mutex> lock(AllPinned().mutex);
  auto it = AllPinned().sizes.upper_bound(at);
  if (it == AllPinned().sizes.begin()) return false;
  --it;
  return at < it->first + it->second;
}

size_t FreeBytes(int device) {
  Buffers& buffers = AllBuffers();
  const std::lock_guard<std::mutex> lock(buffers.mutex);
  return kDeviceBytes - kSharedBytes - buffers.used[device];
}

void SetState(void* data, size_t bytes, ByteState state) {
  const Region& region = DeviceRegion();
  const size_t offset = region.Offset(data);
  if (state != ByteState::kOutside) ASAN_UNPOISON_MEMORY_REGION(data, bytes);
  const bool unwritten = state == ByteState::kUnwritten;
  std::memset(region.states + offset, static_cast<int>(unwritten && !kAccessesAreWatched ? ByteState::kWritten : state),
              bytes);
  if (unwritten) std::memset(data, poison, bytes);
  if (state == ByteState::kOutside) ASAN_POISON_MEMORY_REGION(data, bytes);
}

uint8_t Poison() { return poison; }
void SetPoison(uint8_t value) { poison = value; }

void ForgetAccesses() {
  const Region& region = DeviceRegion();
  for (Access* const accesses : {region.writers, region.readers}) {
    madvise(accesses, kRegionBytes * sizeof(Access), MADV_DONTNEED);
  }
}

namespace {

// Says so if a byte of the buffer is not in a state from `least` on.
std::optional<std::string> CheckStates(const void* data, size_t bytes, ByteState least, absl::string_view what) {
  const Region& region = DeviceRegion();
  if (!region.Contains(data)) return std::nullopt;
  const ByteState* const begin = region.states + region.Offset(data);
  const ByteState* const found = std::find_if(begin, begin + bytes, [&](ByteState s) { return s < least; });
  if (found == begin + bytes) return std::nullopt;
  const char* const address = static_cast<const char*>(data) + (found - begin);
  return absl::StrCat(what, *found == ByteState::kOutside ? " outside of all buffers" : " of memory that nobody wrote",
                      ", ", DescribeAddress(address), ": byte ", found - begin, " of ", bytes);
}

}  // namespace

std::optional<std::string> CheckRead(const void* data, size_t bytes) {
  return CheckStates(data, bytes, ByteState::kWritten, "read");
}

std::optional<std::string> CheckWrite(void* data, size_t bytes) {
  auto wrong = CheckStates(data, bytes, ByteState::kUnwritten, "write");
  if (!wrong && DeviceRegion().Contains(data)) SetState(data, bytes, ByteState::kWritten);
  return wrong;
}

std::optional<std::string> CheckCopy(void* to, const void* from, size_t bytes) {
  const Region& region = DeviceRegion();
  if (!region.Contains(to)) return CheckStates(from, bytes, ByteState::kUnwritten, "read");
  if (!region.Contains(from)) return CheckWrite(to, bytes);
  if (auto wrong = CheckStates(from, bytes, ByteState::kUnwritten, "read")) return wrong;
  if (auto wrong = CheckStates(to, bytes, ByteState::kUnwritten, "write")) return wrong;
  std::memmove(region.states + region.Offset(to), region.states + region.Offset(from), bytes);
  return std::nullopt;
}

std::string DescribeAddress(const void* address) {
  const Region& region = DeviceRegion();
  const size_t offset = region.Offset(address);
  if (offset < kSharedBytes) return absl::StrCat("shared memory at ", offset);
  Buffers& buffers = AllBuffers();
  const std::lock_guard<std::mutex> lock(buffers.mutex);
  auto it = buffers.sizes.upper_bound(offset);
  if (it == buffers.sizes.begin()) return "before all buffers";
  const auto& [place, bytes] = *--it;
  if (offset < place + bytes) return absl::StrCat("at ", offset - place, " of a buffer of ", bytes, " bytes");
  const auto next = std::next(it);
  if (next != buffers.sizes.end() && next->first - offset < offset - place - bytes) {
    return absl::StrCat(next->first - offset, " before a buffer of ", next->second, " bytes");
  }
  return absl::StrCat(offset - place - bytes, " behind a buffer of ", bytes, " bytes");
}

}  // namespace official::compute::cuda_emulation
