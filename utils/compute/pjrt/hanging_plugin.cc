// A PJRT plugin that is another one, but for a function that does not return. In the environment HANGING_PLUGIN_OF is
// the path of the other, HANGING_CALL the name of the function, and HANGING_AFTER, 0 by default, how many of its calls
// return before.

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "pjrt_c_api.h"

namespace {

// All functions of the interface that may fail look like this.
using Function = PJRT_Error*(void* args);

struct Place {
  const char* name;
  size_t offset;  // in PJRT_Api
};
#define PLACE(function) \
  Place { #function, offsetof(PJRT_Api, function) }
constexpr Place kPlaces[] = {
    PLACE(PJRT_Plugin_Initialize),        PLACE(PJRT_Client_Create),
    PLACE(PJRT_Client_PlatformName),      PLACE(PJRT_Client_Compile),
    PLACE(PJRT_LoadedExecutable_Execute), PLACE(PJRT_Client_BufferFromHostBuffer),
    PLACE(PJRT_Buffer_ToHostBuffer),      PLACE(PJRT_Event_OnReady),
    PLACE(PJRT_Buffer_Destroy),
};

Function* whole = nullptr;  // the function, as the other plugin has it
std::atomic<int> calls_left{0};

[[noreturn]] void Hang() {
  for (;;) pause();
}

PJRT_Error* Hanging(void* args) {
  if (calls_left.fetch_sub(1) <= 0) Hang();
  return whole(args);
}

const char* Setting(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) std::abort();
  return value;
}

const PJRT_Api& Other() {
  void* const library = dlopen(Setting("HANGING_PLUGIN_OF"), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::abort();
  return *reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
}

PJRT_Api Api() {
  const char* const name = Setting("HANGING_CALL");
  if (std::strcmp(name, "GetPjrtApi") == 0) Hang();
  const char* const after = std::getenv("HANGING_AFTER");
  calls_left = after == nullptr ? 0 : std::atoi(after);

  const PJRT_Api& other = Other();
  PJRT_Api api{};
  const size_t size = std::min(other.struct_size, sizeof(api));
  std::memcpy(&api, &other, size);
  api.struct_size = size;
  for (const Place& place : kPlaces) {
    if (std::strcmp(place.name, name) != 0) continue;
    // The types of the fields are others.
    char* const field = reinterpret_cast<char*>(&api) + place.offset;
    Function* const hanging = Hanging;
    std::memcpy(&whole, field, sizeof(whole));
    std::memcpy(field, &hanging, sizeof(hanging));
    return api;
  }
  std::abort();  // there is no such function here
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = Api();
  return &api;
}
