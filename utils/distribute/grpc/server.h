// The server of a worker: others join through it, if it is the first one, and send their frames to it.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/distribute/grpc/acceptor.h"
#include "utils/distribute/grpc/connect_options.h"
#include "utils/distribute/grpc/mailbox.h"
#include "utils/distribute/grpc/refusals.h"
#include "utils/distribute/grpc/wire.h"

namespace official::distribute {

// Answers the requests of workers that join.
class JoinHandler {
 public:
  virtual ~JoinHandler() = default;
  // Returns the answer to the first message of a worker; an error refuses it.
  virtual absl::StatusOr<std::string> Challenge(const std::string& first, std::string& state) = 0;
  // Takes the second message of a guest, which is told apart by `id`; `answer` gets the result when all workers have
  // joined, at once where they have begun and this one may take part. It may be called at any time, on any thread. An
  // error refuses the worker.
  virtual absl::Status Join(const std::string& second, const std::string& state, const void* id,
                            std::function<void(std::string)> answer) = 0;
  // The guest has gone. Returns true if it will get no answer, which it was waiting for.
  virtual bool Leave(const void* id) = 0;
  // The guest has its answer, or will have none.
  virtual void Done(const void* id) = 0;
};

class Server {
 public:
  // Listens on an address; port 0 is a free one. `join` may be null. What is given must outlive the server, but the
  // options. FailedPrecondition if that is not possible.
  static absl::StatusOr<std::unique_ptr<Server>> Listen(const std::string& address, const ConnectOptions& options,
                                                        Mailbox& mailbox, JoinHandler* join, Refusals& refusals);
  ~Server();

  int port() const { return acceptor_->port(); }
  // Until the key of the job is known, and which process of its worker this one is, those who send frames wait.
  void SetKey(const std::string& key, int incarnation);

 private:
  class Service;
  class JoinReactor;
  class FramesReactor;

  Server(const ConnectOptions& options, Mailbox& mailbox, JoinHandler* join);
  // Returns the process and channel of a stream of the connection from `peer`, each of which there is once; an error
  // refuses it.
  absl::StatusOr<FramesHello> Admit(const std::string& hello, const std::string& peer);

  const int worker_, num_workers_;
  Mailbox& mailbox_;
  JoinHandler* const join_;
  std::mutex mutex_;
  std::optional<std::string> key_;
  std::vector<FramesReactor*> waiting_;  // for the key
  int incarnation_ = 0;
  std::set<std::tuple<int, int, int>> streams_;  // that were there: worker, incarnation, channel
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;  // of the acceptor, to the server
  std::unique_ptr<Acceptor> acceptor_;
};

// Returns the bytes of a message.
std::string TextOf(const grpc::ByteBuffer& message);
// Returns a message of these bytes, which are copied.
grpc::ByteBuffer MessageOf(absl::string_view bytes);

}  // namespace official::distribute
