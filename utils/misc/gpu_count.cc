#include "utils/misc/gpu_count.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace official::misc {
namespace {

// "cuInit: no CUDA-capable device is detected (error 100; CUDA_VISIBLE_DEVICES is '')"
std::string DriverError(void* driver, const char* call, int error) {
  using GetErrorString = int (*)(int, const char**);
  const auto get_error_string = reinterpret_cast<GetErrorString>(dlsym(driver, "cuGetErrorString"));
  const char* text = nullptr;
  if (get_error_string == nullptr || get_error_string(error, &text) != 0 || text == nullptr) text = "failed";
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return absl::StrCat(call, ": ", text, " (error ", error,
                      visible == nullptr ? "" : absl::StrCat("; CUDA_VISIBLE_DEVICES is '", visible, "'"), ")");
}

// Of the first GPU.
std::string ModelName(void* driver) {
  const auto get_device = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  const auto get_name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
  int device = 0;
  char name[256] = {};
  if (get_device == nullptr || get_name == nullptr || get_device(&device, 0) != 0) return "";
  return get_name(name, sizeof(name) - 1, device) == 0 ? name : "";
}

}  // namespace

VisibleGpus CountGpusOfDriver(const std::string& library) {
  void* driver = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {0, absl::StrCat("the NVIDIA driver cannot be loaded: ", dlerror())};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || get_count == nullptr)
    return {0, absl::StrCat(library, " is not a CUDA driver: it has no cuInit")};
  if (const int error = init(0); error != 0) return {0, DriverError(driver, "cuInit", error)};
  int count = 0;
  if (const int error = get_count(&count); error != 0) return {0, DriverError(driver, "cuDeviceGetCount", error)};
  if (count == 0) return {0, "the NVIDIA driver lists no GPU"};
  return {count, "", ModelName(driver)};
}

VisibleGpus CountVisibleGpus() {
  // The kernel driver makes the first on Linux, the second under Windows. Without one of them the library, if it is
  // installed at all, could only report that there is no device.
  const bool has_device_file = access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
  if (!has_device_file) return {0, "no NVIDIA driver is loaded"};
  return CountGpusOfDriver("libcuda.so.1");
}

}  // namespace official::misc
