// Mutual TLS between workers: both ends of a connection show a certificate of the run's authority, and that of the one
// who is called is for the host by which he is called.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "utils/distribute/grpc/connect_options.h"

namespace official::distribute {

// Without files, those of connections that are not encrypted.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const std::optional<TlsFiles>& tls);
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const std::optional<TlsFiles>& tls);

// Returns OK if a worker that is reached at `address`, or a client if that is empty, can use the files; else
// InvalidArgument names the file and why: it is not PEM, has expired, is not from the authority, is for other hosts, or
// the key is of another certificate.
absl::Status CheckTlsFiles(const TlsFiles& tls, const std::string& address);

// Connects once, to find out why gRPC, which does not tell, has no connection with `name`, "worker 1". InvalidArgument,
// which names it, if trying again does not help, since one of the two does not accept the other's certificate or does
// not use TLS. Else Unavailable with what is known: "Connection refused".
absl::Status WhyNoConnection(const std::string& name, const std::string& address, const std::optional<TlsFiles>& tls);

}  // namespace official::distribute
