#include "official/serve/serve_run.h"

#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "official/serve/checkpoint_watch.h"
#include "official/serve/repeated_call.h"
#include "official/serve/served_models.h"
#include "utils/compute/core/status.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/misc/stop_signals.h"

namespace official::serve {
namespace {

// Opens the latest checkpoint and computes an example of zeros: the first request is not to wait for the compiler.
absl::StatusOr<std::unique_ptr<Servable>> OpenWarm(const std::string& model, const ServedRun& run) {
  ASSIGN_OR_RETURN(std::unique_ptr<Servable> servable, OpenRun(model, run));
  Values example;
  for (const TensorInfo& input : servable->signature().inputs) {
    if (!input.dtype) return servable;
    example.emplace_back(compute::Tensor(*input.dtype, compute::Shape(input.dims)));
  }
  RETURN_IF_ERROR(servable->Run(std::vector<Values>{std::move(example)}).status());
  return servable;
}

// Looks for the checkpoints that take the place of the one that is served: a training writes the next one, or somebody
// replaces or mends its files.
class NewCheckpoints {
 public:
  // `run` opens only the latest checkpoint. `served`: that before `first` was opened; nothing if `first` is of an older
  // one.
  NewCheckpoints(std::string model, const ServedRun& run, const Servable& first, std::optional<LatestFiles> served)
      : model_(std::move(model)), run_(run), signature_(first.signature()), watch_(std::move(served)) {}

  // Returns a servable of the latest checkpoint if that is another than the last one that was returned, it is due, and
  // it can be served. It may be one that is still being copied.
  std::unique_ptr<Servable> Open() {
    const std::optional<LatestFiles> files = FindLatestFiles(run_.config.train.model_dir);
    if (!watch_.IsDue(files)) return nullptr;
    absl::StatusOr<std::unique_ptr<Servable>> opened = TryToOpen();
    if (!opened.ok()) {
      if (watch_.Failed()) {
        LOG(WARNING) << files->name << " is not served, but the one before: " << opened.status().message();
      }
      return nullptr;
    }
    watch_.Served();
    return *std::move(opened);
  }

  // The name of the last checkpoint that Open has returned a servable of.
  const std::string& served() const { return watch_.served()->name; }

 private:
  // Does the same as OpenLatest. Nothing is thrown: the one before must still be served.
  absl::StatusOr<std::unique_ptr<Servable>> TryToOpen() const {
    try {
      return OpenLatest();
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("there is no memory for it");
    } catch (const std::exception& error) {  // a thread cannot be started, say
      return absl::InternalError(error.what());
    }
  }

  absl::StatusOr<std::unique_ptr<Servable>> OpenLatest() const {
    ASSIGN_OR_RETURN(std::unique_ptr<Servable> opened, OpenWarm(model_, run_));
    if (opened->signature() != signature_) return absl::FailedPreconditionError("it is of another network");
    return opened;
  }

  const std::string model_;
  const ServedRun& run_;
  const Signature signature_;
  CheckpointWatch watch_;
};

std::string UrlHost(const std::string& host) {
  return host.find(':') == std::string::npos ? host : absl::StrCat("[", host, "]");
}

void TellAddress(const ServeConfig& config, const std::string& name, int64_t version, int port, std::ostream& out) {
  const std::string url = absl::StrCat("http://", UrlHost(config.http.host), ":", port, "/v1/models/", name);
  if (config.json) {
    out << logs::DumpJson(logs::Json::Object{{"event", "serving"}, {"url", url}, {"port", port}, {"version", version}});
  } else {
    out << "serving " << name << ", step " << version << ", at " << url;
  }
  out << std::endl;
}

// Cancelled once a signal has asked to stop.
absl::Status CheckNotStopped() {
  if (misc::StopSignalReceived() == 0) return absl::OkStatus();
  return absl::CancelledError("stopped before it served");
}

// Returns what RunMain needs to end the process by the signal.
absl::Status StatusOf(const HttpServer::End& end) {
  if (end.num_unanswered == 0) return absl::CancelledError("stopped; all requests that had begun are answered");
  return absl::CancelledError(
      absl::StrCat("stopped; requests that had begun and are not answered: ", end.num_unanswered,
                   ", whose clients had left or whose --rest_api_timeout_in_ms was over"));
}

}  // namespace

absl::Status RunServe(const ServeConfig& config, std::ostream& out) {
  // Until the server takes them.
  std::optional<misc::StopSignals> signals(std::in_place);
  ServedRun run = {.config = config.run,
                   .trained = flags::FlagsOfTraining(config.run.train.model_dir),
                   .top_k = config.top_k,
                   .moved = {}};
  if (config.ratings_file) run.moved["ratings_file"] = *config.ratings_file;
  if (config.vocab_file) run.moved["vocab_file"] = *config.vocab_file;
  ASSIGN_OR_RETURN(const std::string model, ModelOfRun(run));
  ModelServerOptions options = config.server;
  if (options.model_name.empty()) options.model_name = model;
  std::optional<LatestFiles> served = FindLatestFiles(run.config.train.model_dir);
  run.config.train.only_latest = true;
  absl::StatusOr<std::unique_ptr<Servable>> opened = OpenWarm(model, run);
  if (absl::IsDataLoss(opened.status())) {
    // An older checkpoint serves until the latest one is whole.
    served.reset();
    ServedRun with_older = run;
    with_older.config.train.only_latest = false;
    opened = OpenWarm(model, with_older);
  }
  RETURN_IF_ERROR(CheckNotStopped());
  ASSIGN_OR_RETURN(std::unique_ptr<Servable> servable, std::move(opened));
  NewCheckpoints checkpoints(model, run, *servable, std::move(served));
  const int64_t version = servable->version();
  ModelServer models(options, std::move(servable));
  ASSIGN_OR_RETURN(const auto server, HttpServer::Listen(config.http, [&](HttpRequest request, HttpServer::Done done) {
                     models.Handle(std::move(request), std::move(done));
                   }));
  RETURN_IF_ERROR(CheckNotStopped());
  HttpServer::End end;
  std::thread network([&] {
    end = server->Run([&] {
      LOG(INFO) << "stopping: answering the requests that have begun";
      models.Hurry();
    });
    // No client waits any more: a batch that is still computed is given up.
    misc::RequestStop(end.signal);
    models.Stop();
  });
  absl::Cleanup join = [&] {
    server->Stop();  // which is not stopped yet if Serve has thrown
    network.join();
  };
  // Beside the predictions, which would have to wait for it.
  std::optional<RepeatedCall> follow;
  if (config.poll_wait.count() > 0) {
    follow.emplace(config.poll_wait, [&] {
      std::unique_ptr<Servable> opened = checkpoints.Open();
      if (opened == nullptr) return;
      const int64_t step = opened->version();
      models.Replace(std::move(opened));
      LOG(INFO) << "serving step " << step << " (" << checkpoints.served() << ")";
    });
  }
  TellAddress(config, options.model_name, version, server->port(), out);  // when no thread is left to be started
  models.Serve();
  follow.reset();
  std::move(join).Invoke();
  signals.reset();
  return StatusOf(end);
}

}  // namespace official::serve
