// A PJRT plugin that is another one, whose path is COUNTING_PLUGIN_OF in the environment, and counts how often that
// compiles.

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "pjrt_c_api.h"

namespace {

std::atomic<int> compilations{0};

const PJRT_Api& Other() {
  static const PJRT_Api& other = []() -> const PJRT_Api& {
    const char* const path = std::getenv("COUNTING_PLUGIN_OF");
    void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) std::abort();
    return *reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
  }();
  return other;
}

PJRT_Api Api() {
  PJRT_Api api{};
  const size_t size = std::min(Other().struct_size, sizeof(api));
  std::memcpy(&api, &Other(), size);
  api.struct_size = size;
  api.PJRT_Client_Compile = [](PJRT_Client_Compile_Args* args) {
    ++compilations;
    return Other().PJRT_Client_Compile(args);
  };
  return api;
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = Api();
  return &api;
}

extern "C" int NumCompilations() { return compilations; }
