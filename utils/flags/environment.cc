#include "utils/flags/environment.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/distribute/cluster/launcher_env.h"

namespace official::flags {
namespace {

constexpr absl::string_view kNames[] = {
    "CI",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "HOME",
    "LANG",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "NO_COLOR",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TMPDIR",
    "TZ",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "ALL_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "CURL_CA_BUNDLE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GLIBC_TUNABLES",
    "TPU_LIBRARY_PATH",
};

// Ours, and those of CUDA, cuDNN, cuBLAS, NCCL, oneDNN, OpenMP and gRPC.
constexpr absl::string_view kPrefixes[] = {"OFFICIAL_", "TF_",   "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_",  "NVIDIA_",
                                           "ONEDNN_",   "DNNL_", "OMP_",  "GOMP_",  "GRPC_",   "MALLOC_"};

// Those that change how a run computes, in its results or its devices.
constexpr absl::string_view kComputingPrefixes[] = {
    "OFFICIAL_MAX_ISA", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDNN_",
    "CUBLAS_",          "NCCL_",           "NVIDIA_TF32_OVERRIDE", "ONEDNN_",           "DNNL_",
    "TPU_LIBRARY_PATH"};

constexpr absl::string_view kSecretWords[] = {"SECRET", "TOKEN", "PASSWORD", "PASSWD",     "CREDENTIAL",
                                              "COOKIE", "JWT",   "API_KEY",  "PRIVATE_KEY"};

template <typename Prefixes>
bool HasPrefix(absl::string_view name, const Prefixes& prefixes) {
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

bool IsRead(absl::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || HasPrefix(name, kPrefixes) ||
         distribute::IsOfLauncher(name);
}

bool MayBeSecret(absl::string_view name) {
  return std::any_of(std::begin(kSecretWords), std::end(kSecretWords),
                     [&](absl::string_view word) { return absl::StrContains(name, word); });
}

// "http://***@proxy:3128" for "http://me:mine@proxy:3128", and "***@proxy:3128" for the same without a scheme, which
// proxies may lack.
std::string ProxyWithoutPassword(absl::string_view value) {
  const size_t at = value.rfind('@');
  if (at == value.npos) return std::string(value);
  const size_t colon = value.find(':');
  const bool has_scheme = absl::StartsWith(value.substr(std::min(colon, value.size())), "://") && colon < at;
  return absl::StrCat(has_scheme ? value.substr(0, colon + 3) : "", "***", value.substr(at));
}

// "http://***@proxy:3128" for "http://me:mine@proxy:3128". A password may have a slash or an @ in it.
std::string WithoutPasswords(absl::string_view value) {
  std::string shown;
  for (size_t colon; (colon = value.find("://")) != value.npos;) {
    const size_t begin = colon + 3;
    absl::StrAppend(&shown, value.substr(0, begin));
    value.remove_prefix(begin);
    const size_t end = std::min(value.find_first_of(" ,"), value.size());
    const size_t at = value.substr(0, end).rfind('@');
    if (at == value.npos) continue;
    absl::StrAppend(&shown, "***");
    value.remove_prefix(at);
  }
  return absl::StrCat(shown, value);
}

std::string Shown(absl::string_view name, absl::string_view value) {
  if (MayBeSecret(name)) return "(not shown)";
  return absl::EndsWithIgnoreCase(name, "_proxy") ? ProxyWithoutPassword(value) : WithoutPasswords(value);
}

}  // namespace

std::vector<EnvironmentVariable> VariablesThatAreRead(const char* const* environment) {
  std::vector<EnvironmentVariable> variables;
  for (; *environment != nullptr; ++environment) {
    const absl::string_view text = *environment;
    const size_t equals = text.find('=');
    if (equals == text.npos || !IsRead(text.substr(0, equals))) continue;
    const absl::string_view name = text.substr(0, equals), value = text.substr(equals + 1);
    variables.push_back({.name = std::string(name), .value = Shown(name, value)});
  }
  std::sort(variables.begin(), variables.end(),
            [](const EnvironmentVariable& a, const EnvironmentVariable& b) { return a.name < b.name; });
  return variables;
}

std::vector<EnvironmentVariable> VariablesThatChangeRuns(const char* const* environment) {
  std::vector<EnvironmentVariable> variables = VariablesThatAreRead(environment);
  std::erase_if(variables,
                [](const EnvironmentVariable& variable) { return !HasPrefix(variable.name, kComputingPrefixes); });
  return variables;
}

}  // namespace official::flags
