#include "utils/distribute/grpc/credentials.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/socket_address.h"

namespace official::distribute {
namespace {

template <auto free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
template <typename T, auto free>
using Owned = std::unique_ptr<T, Deleter<free>>;
using Bio = Owned<BIO, BIO_free_all>;
using Certificate = Owned<X509, X509_free>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Store = Owned<X509_STORE, X509_STORE_free>;
using Verification = Owned<X509_STORE_CTX, X509_STORE_CTX_free>;
using Context = Owned<SSL_CTX, SSL_CTX_free>;
using Connection = Owned<SSL, SSL_free>;
using Names = Owned<GENERAL_NAMES, GENERAL_NAMES_free>;

constexpr char kMakeOne[] = "tools/make_certs makes all files of a run";

absl::Status FileError(const TlsFile& file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file.name, " ", what, "; ", kMakeOne));
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const TlsFile& file) {
  const Bio bio(BIO_new_mem_buf(file.pem.data(), static_cast<int>(file.pem.size())));
  std::vector<Certificate> certificates;
  while (X509* const next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) certificates.emplace_back(next);
  ERR_clear_error();
  if (certificates.empty()) return FileError(file, "has no certificate in PEM (-----BEGIN CERTIFICATE-----)");
  return certificates;
}

absl::StatusOr<Key> ReadKey(const TlsFile& file) {
  const Bio bio(BIO_new_mem_buf(file.pem.data(), static_cast<int>(file.pem.size())));
  // Else it would ask for the password on the terminal.
  const auto no_password = [](char*, int, int, void*) { return 0; };
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (key == nullptr) return FileError(file, "has no key in PEM (-----BEGIN PRIVATE KEY-----) without a password");
  return key;
}

// What the files hold.
struct Identity {
  std::vector<Certificate> chain, authorities;  // the worker's certificate is the first of its chain
  Key key;
};

absl::StatusOr<Identity> ReadIdentity(const TlsFiles& tls) {
  Identity identity;
  ASSIGN_OR_RETURN(identity.chain, ReadCertificates(tls.cert));
  ASSIGN_OR_RETURN(identity.authorities, ReadCertificates(tls.ca));
  ASSIGN_OR_RETURN(identity.key, ReadKey(tls.key));
  if (X509_check_private_key(identity.chain[0].get(), identity.key.get()) == 1) return identity;
  ERR_clear_error();
  return FileError(tls.key, absl::StrCat("is not the key of ", tls.cert.name));
}

std::string TimeText(const ASN1_TIME* time) {
  std::tm parts = {};
  char text[32] = "";
  if (ASN1_TIME_to_tm(time, &parts) == 1) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

// Returns OK if peers that have the authorities accept the certificate.
absl::Status VerifyOwn(const TlsFiles& tls, const Identity& identity) {
  const Store store(X509_STORE_new());
  for (const Certificate& authority : identity.authorities) X509_STORE_add_cert(store.get(), authority.get());
  STACK_OF(X509)* const between = sk_X509_new_null();
  const auto free_between = absl::MakeCleanup([between] { sk_X509_free(between); });
  for (const Certificate& each : identity.chain) sk_X509_push(between, each.get());
  for (const char* const use : {"ssl_client", "ssl_server"}) {
    const Verification verification(X509_STORE_CTX_new());
    X509_STORE_CTX_init(verification.get(), store.get(), identity.chain[0].get(), between);
    X509_STORE_CTX_set_default(verification.get(), use);
    if (X509_verify_cert(verification.get()) == 1) continue;
    const int error = X509_STORE_CTX_get_error(verification.get());
    std::string when;
    if (X509* const at_fault = X509_STORE_CTX_get_current_cert(verification.get())) {
      if (error == X509_V_ERR_CERT_HAS_EXPIRED) when = TimeText(X509_get0_notAfter(at_fault));
      if (error == X509_V_ERR_CERT_NOT_YET_VALID) when = TimeText(X509_get0_notBefore(at_fault));
    }
    ERR_clear_error();
    return FileError(tls.cert,
                     absl::StrCat("is not accepted by ", tls.ca.name, ": ", X509_verify_cert_error_string(error),
                                  when.empty() ? "" : absl::StrCat(" (", when, ")")));
  }
  return absl::OkStatus();
}

bool IsFor(X509* certificate, const std::string& host) {
  return X509_check_ip_asc(certificate, host.c_str(), 0) == 1 ||
         X509_check_host(certificate, host.data(), host.size(), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, nullptr) == 1;
}

// The names and addresses that a certificate is for.
std::string HostsOf(X509* certificate) {
  std::vector<std::string> hosts;
  const Names names(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const Bio bio(BIO_new(BIO_s_mem()));
    GENERAL_NAME_print(bio.get(), sk_GENERAL_NAME_value(names.get(), i));
    char* text = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &text);
    hosts.emplace_back(text, size);
  }
  return hosts.empty() ? "no host" : absl::StrJoin(hosts, ", ");
}

// Keeps a broken connection from ending the process while this lives: OpenSSL writes without MSG_NOSIGNAL.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now = {};
    sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
};

// Makes the handshake as gRPC does, and waits for the first bytes of the other side, which has accepted this one then.
absl::Status Handshake(const std::string& task, const std::string& address, const TlsFiles& tls, int fd) {
  ASSIGN_OR_RETURN(const Identity identity, ReadIdentity(tls));
  const Context context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_use_certificate(context.get(), identity.chain[0].get());
  SSL_CTX_use_PrivateKey(context.get(), identity.key.get());
  for (size_t i = 1; i < identity.chain.size(); ++i) SSL_CTX_add1_chain_cert(context.get(), identity.chain[i].get());
  for (const Certificate& authority : identity.authorities) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get());
  }
  const Connection ssl(SSL_new(context.get()));
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2);
  const std::string name = absl::StrCat(task, " at ", address), host = HostOf(address);
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str()) != 1)
    SSL_set1_host(ssl.get(), host.c_str());
  // The handshake comes to its end whatever the other certificate is, which is looked at then.
  SSL_set_verify(ssl.get(), SSL_VERIFY_NONE, nullptr);
  SSL_set_fd(ssl.get(), fd);
  ERR_clear_error();
  const bool shaken = SSL_connect(ssl.get()) == 1;
  if (const long verified = SSL_get_verify_result(ssl.get()); shaken && verified != X509_V_OK) {
    const Certificate other(SSL_get1_peer_certificate(ssl.get()));
    return absl::InvalidArgumentError(absl::StrCat(name, " is refused: its certificate for ", HostsOf(other.get()),
                                                   " is not accepted by ", tls.ca.name, " for the host ", host, ": ",
                                                   X509_verify_cert_error_string(verified), "; ", kMakeOne));
  }
  char byte;
  errno = 0;
  if (shaken && SSL_read(ssl.get(), &byte, 1) == 1) return absl::UnavailableError("the connection was made just now");
  const int system_error = errno;
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  constexpr char kGive[] = "give all workers --tls_cert, --tls_key and --tls_ca of one run";
  if (shaken && system_error != EAGAIN) {
    // gRPC verifies this side's certificate after the handshake, and says nothing where it does not accept it.
    return absl::InvalidArgumentError(absl::StrCat(
        name, " ends the connection after the handshake of TLS: it does not ",
        "accept the certificate of this worker, ", tls.cert.name, ", or has ended just now; ", kGive, ": ", kMakeOne));
  }
  if (ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) != SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    const char* const reason = ERR_reason_error_string(error);
    return absl::InvalidArgumentError(absl::StrCat(name, " makes no handshake of TLS with ", tls.cert.name, ": ",
                                                   reason == nullptr ? "unknown reason" : reason, "; ", kGive, ": ",
                                                   kMakeOne));
  }
  return absl::UnavailableError("it ends the connection at once");
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const std::optional<TlsFiles>& tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls->ca.pem;
  options.pem_private_key = tls->key.pem;
  options.pem_cert_chain = tls->cert.pem;
  return grpc::SslCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const std::optional<TlsFiles>& tls) {
  if (!tls) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls->ca.pem;
  options.pem_key_cert_pairs = {{tls->key.pem, tls->cert.pem}};
  return grpc::SslServerCredentials(options);
}

absl::Status CheckTlsFiles(const TlsFiles& tls, const std::string& address) {
  ASSIGN_OR_RETURN(const Identity identity, ReadIdentity(tls));
  RETURN_IF_ERROR(VerifyOwn(tls, identity));
  if (address.empty()) return absl::OkStatus();
  X509* const certificate = identity.chain[0].get();
  const std::string host = HostOf(address);
  if (IsFor(certificate, host)) return absl::OkStatus();
  return FileError(
      tls.cert, absl::StrCat("is for ", HostsOf(certificate), ", but the others reach this worker at the host ", host));
}

absl::Status WhyNoConnection(const std::string& name, const std::string& address, const std::optional<TlsFiles>& tls) {
  constexpr std::chrono::seconds kWait(1);
  ASSIGN_OR_RETURN(const int fd, ConnectTo(address, kWait));
  const auto close_socket = absl::MakeCleanup([fd] { close(fd); });
  const NoSigpipe no_sigpipe;
  if (tls) return Handshake(name, address, *tls, fd);
  // A worker without TLS speaks first.
  char byte;
  if (read(fd, &byte, 1) == 1) return absl::UnavailableError("the connection was made just now");
  return absl::UnavailableError("it does not answer; if it uses TLS, give all workers --tls_cert, --tls_key, --tls_ca");
}

}  // namespace official::distribute
