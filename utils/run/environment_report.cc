#include "utils/run/environment_report.h"

#include <gnu/libc-version.h>
#include <google/protobuf/stubs/common.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "utils/compute/cpu/available_cores.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cuda_backend/cuda_backend.h"
#include "utils/compute/cuda_backend/gpu_kernels.h"
#include "utils/distribute/grpc/connect_workers.h"
#include "utils/flags/environment.h"
#include "utils/logs/json.h"
#include "utils/misc/available_memory.h"
#include "utils/misc/gpu_count.h"
#include "utils/misc/system_files.h"
#include "utils/misc/version.h"
#include "utils/run/usable_gpus.h"

namespace official::run {
namespace {

using logs::Json;

std::string FirstLine(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return std::string(absl::StripAsciiWhitespace(line));
}

void AddText(Json::Object& object, const char* name, std::string value) {
  if (!value.empty()) object.emplace_back(name, std::move(value));
}

Json::Object System() {
  Json::Object system;
  const std::string distribution = misc::SystemField("/etc/os-release", "PRETTY_NAME", '=');
  AddText(system, "distribution", std::string(absl::StripSuffix(absl::StripPrefix(distribution, "\""), "\"")));
  utsname name = {};
  if (uname(&name) == 0) {
    system.emplace_back("kernel", absl::StrCat(name.sysname, " ", name.release, " ", name.version));
    system.emplace_back("architecture", name.machine);
  }
  system.emplace_back("libc", absl::StrCat("glibc ", gnu_get_libc_version()));
  return system;
}

// Those that decide which kernels run.
std::string VectorFlags() {
  std::vector<std::string> found;
  for (const absl::string_view flag : absl::StrSplit(misc::SystemField("/proc/cpuinfo", "flags"), ' ')) {
    const bool is_vector = absl::StartsWith(flag, "avx") || absl::StartsWith(flag, "amx") ||
                           absl::StartsWith(flag, "sse4") || flag == "fma" || flag == "f16c" || flag == "bmi2";
    if (is_vector) found.emplace_back(flag);
  }
  return absl::StrJoin(found, " ");
}

Json::Object Processor() {
  Json::Object processor;
  AddText(processor, "model", misc::SystemField("/proc/cpuinfo", "model name"));
  AddText(processor, "vector_flags", VectorFlags());
  processor.emplace_back("kernels_use", compute::IsaName(compute::CpuIsa()));
  processor.emplace_back("cores_online", int64_t{sysconf(_SC_NPROCESSORS_ONLN)});
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) processor.emplace_back("cores_of_affinity", CPU_COUNT(&cores));
  processor.emplace_back("cores_to_use", compute::AvailableCores());
  return processor;
}

Json::Object Memory() {
  Json::Object memory;
  for (const auto& [name, field] : {std::pair("total_bytes", "MemTotal"), {"available_bytes", "MemAvailable"}}) {
    int64_t kilobytes = 0;
    const std::string text = misc::SystemField("/proc/meminfo", field);
    if (absl::SimpleAtoi(absl::StripSuffix(text, " kB"), &kilobytes)) memory.emplace_back(name, kilobytes * 1024);
  }
  if (const auto limit = misc::MemoryLimit()) memory.emplace_back("limit_of_control_group_bytes", *limit);
  struct statvfs shared = {};
  if (statvfs("/dev/shm", &shared) == 0) {
    memory.emplace_back("dev_shm_bytes", static_cast<int64_t>(shared.f_blocks * shared.f_frsize));
  }
  return memory;
}

Json::Object Gpus() {
  const misc::VisibleGpus visible = misc::CountVisibleGpus();
  Json::Object gpus = {{"visible", visible.count}};
  AddText(gpus, "why_none", visible.why_none);
  AddText(gpus, "model", visible.model);
  AddText(gpus, "driver", FirstLine("/proc/driver/nvidia/version"));
  if (visible.count == 0) return gpus;
  const absl::Status loaded = compute::LoadCudaBackend();
  if (!loaded.ok()) {
    gpus.emplace_back("why_not_usable", std::string(loaded.message()));
    return gpus;
  }
  const compute::CudaGpus& found = compute::FoundCudaGpus();
  gpus.emplace_back("usable", static_cast<int64_t>(found.usable.size()));
  if (!found.unusable.empty()) gpus.emplace_back("unusable", absl::StrJoin(found.unusable, "; "));
  // " with CUDA 13.0 ...", of CUDA, cuDNN, cuBLAS and NCCL.
  AddText(gpus, "libraries", std::string(absl::StripPrefix(WithLibraries(compute::kCudaKind), " with ")));
  return gpus;
}

Json::Object Libraries() {
  const dnnl_version_t* const onednn = dnnl_version();
  Json::Object libraries = {{"onednn", absl::StrCat(onednn->major, ".", onednn->minor, ".", onednn->patch)},
                            {"protobuf", google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION)}};
  const absl::StatusOr<std::string> grpc = distribute::GrpcVersion();
  libraries.emplace_back("grpc_core", grpc.ok() ? *grpc : absl::StrCat("none: ", grpc.status().message()));
  return libraries;
}

std::string Compiler() {
#ifdef __clang__
  return __VERSION__;
#else
  return "GCC " __VERSION__;
#endif
}

// A line "name: value" for each value.
struct AsLines {
  std::string prefix;
  std::string& text;

  void operator()(const Json::Object& object) const {
    for (const auto& [name, value] : object) {
      std::visit(AsLines{prefix.empty() ? name : absl::StrCat(prefix, ".", name), text}, value.value());
    }
  }
  void operator()(const std::string& value) const {
    absl::StrAppend(&text, prefix, ": ", absl::Utf8SafeCEscape(value), "\n");
  }
  template <typename T>
  void operator()(const T& value) const {
    absl::StrAppend(&text, prefix, ": ", logs::DumpJson(value), "\n");
  }
};

}  // namespace

std::string EnvironmentReport(const flags::Program& program, bool json) {
  Json::Object variables;
  for (flags::EnvironmentVariable& variable : flags::VariablesThatAreRead(environ)) {
    variables.emplace_back(std::move(variable.name), std::move(variable.value));
  }
  const Json::Object report = {{"program", program.name},
                               {"version", misc::kVersion},
                               {"commit", program.commit},
                               {"compiler", Compiler()},
                               {"gpu_kernels", compute::kGpuKernels},
                               {"system", System()},
                               {"processor", Processor()},
                               {"memory", Memory()},
                               {"gpus", Gpus()},
                               {"libraries", Libraries()},
                               {"environment", variables}};
  if (json) return absl::StrCat(logs::DumpJson(report), "\n");
  std::string text;
  AsLines{"", text}(report);
  return text;
}

}  // namespace official::run
