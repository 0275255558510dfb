#include "utils/logs/run_info.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "utils/misc/system_files.h"

namespace official::logs {
namespace {

// The frequency that the brand string advertises ("... @ 2.50GHz" is 2500), else the one that the CPU runs at now.
std::optional<double> MhzPerCpu(const std::string& cpuinfo, absl::string_view brand) {
  double value = 0;
  const size_t at = brand.rfind('@');
  if (at != absl::string_view::npos) {
    absl::string_view text = absl::StripAsciiWhitespace(brand.substr(at + 1));
    const double unit = absl::ConsumeSuffix(&text, "GHz") ? 1000 : absl::ConsumeSuffix(&text, "MHz") ? 1 : 0;
    if (unit > 0 && absl::SimpleAtod(text, &value)) return value * unit;
  }
  if (absl::SimpleAtod(misc::SystemField(cpuinfo, "cpu MHz"), &value)) return value;
  return std::nullopt;
}

Json CpuInfo(const std::string& cpuinfo) {
  Json::Object cpu = {{"num_cores", int64_t{sysconf(_SC_NPROCESSORS_ONLN)}}};
  const std::string brand = misc::SystemField(cpuinfo, "model name");
  if (!brand.empty()) cpu.emplace_back("cpu_info", brand);
  if (const auto mhz = MhzPerCpu(cpuinfo, brand)) cpu.emplace_back("mhz_per_cpu", *mhz);
  return cpu;
}

// Bytes of a field of /proc/meminfo ("16384 kB").
std::optional<int64_t> MemoryBytes(const std::string& meminfo, absl::string_view name) {
  const std::string text = misc::SystemField(meminfo, name);
  int64_t kilobytes = 0;
  if (!absl::SimpleAtoi(absl::StripSuffix(text, " kB"), &kilobytes)) return std::nullopt;
  return kilobytes * 1024;
}

Json MachineConfig(const RunInfo& info, const SystemFiles& files) {
  Json::Object machine;
  if (std::ifstream(files.cpuinfo)) machine.emplace_back("cpu_info", CpuInfo(files.cpuinfo));
  Json::Object gpu = {{"count", info.gpu_count}};
  if (info.gpu_count > 0) gpu.emplace_back("model", info.gpu_model);
  machine.emplace_back("gpu_info", std::move(gpu));
  if (const auto total = MemoryBytes(files.meminfo, "MemTotal")) machine.emplace_back("memory_total", *total);
  if (const auto available = MemoryBytes(files.meminfo, "MemAvailable")) {
    machine.emplace_back("memory_available", *available);
  }
  return machine;
}

Json NamedValues(std::vector<Json::Object> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Json::Object& a, const Json::Object& b) {
    return std::get<std::string>(a[0].second.value()) < std::get<std::string>(b[0].second.value());
  });
  return Json::Array(entries.begin(), entries.end());
}

Json TensorflowEnvironmentVariables() {
  std::vector<Json::Object> entries;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(*variable, absl::MaxSplits('=', 1));
    if (absl::StartsWith(parts.first, "TF_")) entries.push_back({{"name", parts.first}, {"value", parts.second}});
  }
  return NamedValues(std::move(entries));
}

// The name of the field says the type, for the columns of a database.
struct ToField {
  std::pair<std::string, Json> operator()(std::nullopt_t) const { return {"string_value", "None"}; }
  std::pair<std::string, Json> operator()(bool value) const { return {"bool_value", value ? "True" : "False"}; }
  std::pair<std::string, Json> operator()(int64_t value) const { return {"long_value", value}; }
  std::pair<std::string, Json> operator()(double value) const { return {"float_value", value}; }
  std::pair<std::string, Json> operator()(const std::string& value) const { return {"string_value", value}; }
};

Json RunParameters(const std::vector<std::pair<std::string, RunParameter>>& parameters) {
  std::vector<Json::Object> entries;
  for (const auto& [name, value] : parameters) entries.push_back({{"name", name}, std::visit(ToField(), value)});
  return NamedValues(std::move(entries));
}

bool OnGoogleComputeEngine(const std::string& product_name_file) {
  std::string name;
  std::getline(std::ifstream(product_name_file) >> std::ws, name);
  return absl::StartsWith(name, "Google");  // "Google", "Google Compute Engine"
}

}  // namespace

std::string BenchmarkTimestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

Json CollectRunInfo(const RunInfo& info, absl::Time now, const SystemFiles& files) {
  Json::Object run = {
      {"model_name", info.model_name},
      {"dataset", Json::Object{{"name", info.dataset_name}}},
      {"machine_config", MachineConfig(info, files)},
      {"test_id", info.test_id ? Json(*info.test_id) : Json()},
      {"run_date", BenchmarkTimestamp(now)},
      {"tensorflow_version", Json::Object{{"version", info.version}, {"git_hash", info.version_git_hash}}},
      {"tensorflow_environment_variables", TensorflowEnvironmentVariables()}};
  if (!info.run_parameters.empty()) run.emplace_back("run_parameters", RunParameters(info.run_parameters));
  if (OnGoogleComputeEngine(files.product_name)) run.emplace_back("test_environment", "GCP");
  return run;
}

}  // namespace official::logs
