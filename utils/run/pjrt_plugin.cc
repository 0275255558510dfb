#include "utils/run/pjrt_plugin.h"

#include <glob.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/pjrt/call_watch.h"
#include "utils/compute/pjrt_backend/pjrt_backend.h"
#include "utils/logs/log.h"
#include "utils/run/end_process.h"

namespace official::run {
namespace {

constexpr char kInPython[] = "/lib/python3*/*-packages/libtpu/libtpu.so";

std::vector<std::string> FilesLike(const std::string& pattern) {
  std::vector<std::string> files;
  glob_t found = {};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return files;
}

// The program cannot work with the plugin, whatever it tries.
bool IsUnusable(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status);
}

compute::PjrtWaits WaitsOf(const flags::PerformanceConfig& config, const std::string& program) {
  return {.deadline = std::chrono::seconds(config.all_reduce_timeout_secs),
          .compile_deadline = std::chrono::seconds(config.compile_timeout_secs),
          .set_by = "--all_reduce_timeout_secs",
          .compile_set_by = "--compile_timeout_secs",
          .tell = [](const std::string& message) { LOG(INFO) << message; },
          .end = [program](const absl::Status& status) { EndProcess(program, status); }};
}

}  // namespace

std::vector<std::string> InstalledTpuLibraries() {
  if (const char* const path = std::getenv("TPU_LIBRARY_PATH"); path != nullptr && *path != '\0') return {path};
  std::vector<std::string> patterns = {"/lib/libtpu.so", "/usr/lib/libtpu.so"};
  if (const char* const venv = std::getenv("VIRTUAL_ENV")) patterns.push_back(absl::StrCat(venv, kInPython));
  if (const char* const home = std::getenv("HOME")) patterns.push_back(absl::StrCat(home, "/.local", kInPython));
  for (const char* const root : {"/usr/local", "/usr"}) patterns.push_back(absl::StrCat(root, kInPython));
  std::vector<std::string> libraries;
  for (const std::string& pattern : patterns) {
    for (std::string& file : FilesLike(pattern)) libraries.push_back(std::move(file));
  }
  return libraries;
}

absl::StatusOr<int> UsePjrtPlugin(const flags::PerformanceConfig& config, const std::string& program) {
  std::vector<std::string> plugins = InstalledTpuLibraries();
  if (config.pjrt_plugin) plugins = {*config.pjrt_plugin};
  if (plugins.empty()) {
    return absl::InvalidArgumentError(
        "--distribution_strategy=tpu: no libtpu.so is installed here; install it (pip install libtpu), or name it, or "
        "another PJRT plugin, by "
        "--pjrt_plugin=PATH");
  }
  const absl::StatusOr<int> num_devices = compute::LoadPjrtBackend(
      {.path = plugins[0], .num_cpu_devices = config.num_cpu_devices, .waits = WaitsOf(config, program)});
  if (num_devices.ok()) return num_devices;
  const absl::Status& status = num_devices.status();
  return absl::Status(IsUnusable(status) ? absl::StatusCode::kInvalidArgument : status.code(),
                      absl::StrCat("--distribution_strategy=tpu: ", status.message()));
}

}  // namespace official::run
