// What keeps strangers out of a run: the secret and the certificates that the flags name.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/distribute/cluster/address.h"
#include "utils/distribute/grpc/connect_options.h"
#include "utils/flags/cluster.h"

namespace official::run {

// Returns how to keep a file with a secret, which `user` reads, from other users: "make it yours alone: chmod 600 ";
// empty if it is. A file of root may be read by its group, as Kubernetes mounts a Secret for a pod that is not root;
// any other file by its owner only.
std::string HowToKeepFromOthers(const struct stat& file, uid_t user);

// Returns the secret in the file of --run_secret_file. InvalidArgument if others can use the file, it cannot be read or
// is too short.
absl::StatusOr<std::string> ReadSecret(const std::string& path);

// Returns the secret of those who listen at the addresses, which a place names: {"worker 0", "h0:4000"}. Empty if there
// is none and none is needed. InvalidArgument if strangers could take part: see flags::ClusterConfig.
absl::StatusOr<std::string> SecretFor(const flags::ClusterConfig& cluster,
                                      const std::vector<distribute::PlacedAddress>& listeners);

// Returns the files of TLS; nothing if no flag names one. InvalidArgument if one is missing or cannot be used.
absl::StatusOr<std::optional<distribute::TlsFiles>> ReadTlsFiles(const flags::ClusterConfig& cluster);

}  // namespace official::run
