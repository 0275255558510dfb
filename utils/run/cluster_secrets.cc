#include "utils/run/cluster_secrets.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"

namespace official::run {
namespace {

constexpr int64_t kMinSecretBytes = 16, kMaxSecretBytes = 4096, kMaxPemBytes = 1 << 20;

// A flag that names a file, as messages have it.
std::string NameOf(absl::string_view flag, const std::string& path) { return absl::StrCat("--", flag, "=", path); }

absl::Status FileError(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(name, " ", what));
}

absl::StatusOr<std::string> ReadFlagFile(const std::string& name, const std::string& path, int64_t max_bytes) {
  absl::StatusOr<std::string> text = files::ReadFile(path, max_bytes);
  if (!text.ok()) return FileError(name, absl::StrCat("cannot be read: ", text.status().message()));
  return text;
}

// The same of a file that others may not use.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& name, const std::string& path, int64_t max_bytes) {
  struct stat file;
  if (stat(path.c_str(), &file) == 0) {
    const std::string advice = HowToKeepFromOthers(file, geteuid());
    if (!advice.empty()) return FileError(name, absl::StrCat("can be used by others; ", advice, path));
  }
  return ReadFlagFile(name, path, max_bytes);
}

}  // namespace

std::string HowToKeepFromOthers(const struct stat& file, uid_t user) {
  const bool is_of_root = file.st_uid == 0 && user != 0;
  const mode_t forbidden = S_IRWXO | (is_of_root ? S_IWGRP | S_IXGRP : S_IRWXG);
  if ((file.st_mode & forbidden) == 0) return "";
  return is_of_root ? "a file of root may at most be read by your group: chmod 640 "
                    : "make it yours alone: chmod 600 ";
}

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  const std::string name = NameOf("run_secret_file", path);
  ASSIGN_OR_RETURN(const std::string secret, ReadPrivateFile(name, path, kMaxSecretBytes));
  if (static_cast<int64_t>(secret.size()) >= kMinSecretBytes) return secret;
  return FileError(name, absl::StrCat("has ", secret.size(), " bytes, and needs at least ", kMinSecretBytes,
                                      "; make one: head -c 32 /dev/urandom > ", path));
}

absl::StatusOr<std::optional<distribute::TlsFiles>> ReadTlsFiles(const flags::ClusterConfig& cluster) {
  if (!cluster.tls_cert && !cluster.tls_key && !cluster.tls_ca) return std::nullopt;
  if (!cluster.tls_cert || !cluster.tls_key || !cluster.tls_ca) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no ",
                     !cluster.tls_cert  ? "--tls_cert"
                     : !cluster.tls_key ? "--tls_key"
                                        : "--tls_ca",
                     "; give all of --tls_cert=FILE --tls_key=FILE --tls_ca=FILE, or none of them"));
  }
  distribute::TlsFiles tls = {.cert = {.name = NameOf("tls_cert", *cluster.tls_cert), .pem = ""},
                              .key = {.name = NameOf("tls_key", *cluster.tls_key), .pem = ""},
                              .ca = {.name = NameOf("tls_ca", *cluster.tls_ca), .pem = ""}};
  ASSIGN_OR_RETURN(tls.cert.pem, ReadFlagFile(tls.cert.name, *cluster.tls_cert, kMaxPemBytes));
  ASSIGN_OR_RETURN(tls.key.pem, ReadPrivateFile(tls.key.name, *cluster.tls_key, kMaxPemBytes));
  ASSIGN_OR_RETURN(tls.ca.pem, ReadFlagFile(tls.ca.name, *cluster.tls_ca, kMaxPemBytes));
  return tls;
}

absl::StatusOr<std::string> SecretFor(const flags::ClusterConfig& cluster,
                                      const std::vector<distribute::PlacedAddress>& listeners) {
  if (cluster.run_secret_file) return ReadSecret(*cluster.run_secret_file);
  const auto far = std::find_if_not(listeners.begin(), listeners.end(),
                                    [](const auto& each) { return distribute::IsLoopback(each.address); });
  if (cluster.insecure_cluster || cluster.tls_cert || far == listeners.end()) return "";
  return absl::InvalidArgumentError(
      absl::StrCat(far->place, " listens at ", far->address,
                   ", where strangers may take part in this run; give all workers a file with the same secret, "
                   "--run_secret_file=FILE, or certificates, --tls_cert and so on, or in a network that you trust "
                   "--insecure_cluster"));
}

}  // namespace official::run
