// Stands in for libcuda.so.1 in gpu_count_test: FAKE_GPUS is the number of GPUs, or -E for cuInit to fail with error E.
#include <cstdio>
#include <cstdlib>

extern "C" {

int cuInit(unsigned) {
  const int gpus = std::atoi(std::getenv("FAKE_GPUS"));
  return gpus < 0 ? -gpus : 0;
}

int cuDeviceGetCount(int* count) {
  *count = std::atoi(std::getenv("FAKE_GPUS"));
  return 0;
}

int cuDeviceGet(int* device, int number) {
  *device = 70 + number;
  return 0;
}

int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "Fake %d", device);
  return 0;
}

int cuGetErrorString(int error, const char** text) {
  if (error != 100) return 1;
  *text = "no CUDA-capable device is detected";
  return 0;
}
}
