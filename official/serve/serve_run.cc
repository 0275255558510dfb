#include "official/serve/serve_run.h"

#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "official/serve/served_models.h"
#include "utils/compute/core/status.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/misc/stop_signals.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

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

// Looks for the checkpoints that a training writes after the one that is served.
class NewCheckpoints {
 public:
  // `served`: the name of the latest checkpoint before `first` was opened.
  NewCheckpoints(std::string model, const ServedRun& run, const Servable& first, std::optional<std::string> served)
      : model_(std::move(model)), run_(run), signature_(first.signature()), name_(std::move(served)) {}

  // Returns a servable of the latest checkpoint if that is another than the last one that was returned and can be
  // served. One that cannot is tried again after 1 call, 2, 4 and so on: it may be a file that is still being copied,
  // or a disk that was away, but each try reads all of it.
  std::unique_ptr<Servable> Open() {
    const std::optional<std::string> latest = train::LatestCheckpointName(run_.config.train.model_dir);
    if (!latest || latest == name_) return nullptr;
    const bool failed_before = latest == failed_;
    if (failed_before && --calls_left_ > 0) return nullptr;
    absl::StatusOr<std::unique_ptr<Servable>> opened = OpenIntact();
    if (!opened.ok()) {
      if (!failed_before) {
        LOG(WARNING) << *latest << " is not served, but the one before: " << opened.status().message();
      }
      failed_ = latest;
      calls_between_ = failed_before ? 2 * calls_between_ : 1;
      calls_left_ = calls_between_;
      return nullptr;
    }
    name_ = latest;
    failed_.reset();
    LOG(INFO) << "serving step " << (*opened)->version() << " (" << *latest << ")";
    return *std::move(opened);
  }

 private:
  // Opens the latest checkpoint. DataLoss if that is damaged, and an older one, which may be served already, would be
  // opened in its place.
  absl::StatusOr<std::unique_ptr<Servable>> OpenIntact() const {
    ASSIGN_OR_RETURN(const train::LatestCheckpoint intact, train::FindLatestCheckpoint(run_.config.train.model_dir));
    if (!intact.note.empty()) return absl::DataLossError(intact.note);
    ASSIGN_OR_RETURN(std::unique_ptr<Servable> opened, OpenWarm(model_, run_));
    if (opened->signature() != signature_) return absl::FailedPreconditionError("it is of another network");
    return opened;
  }

  const std::string model_;
  const ServedRun& run_;
  const Signature signature_;
  std::optional<std::string> name_;             // of the last one that was returned
  std::optional<std::string> failed_;           // could not be served
  int64_t calls_between_ = 0, calls_left_ = 0;  // until that is tried again
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

// What RunMain needs to end the process by that signal.
absl::Status EndBySignal(const HttpServer::End& end) {
  const misc::StopSignals signals;
  std::raise(end.signal);
  if (end.num_unanswered == 0) return absl::CancelledError("stopped; all requests that had begun are answered");
  return absl::CancelledError(
      absl::StrCat("stopped; requests that had begun and are not answered: ", end.num_unanswered,
                   ", whose clients had left or whose --rest_api_timeout_in_ms was over"));
}

}  // namespace

absl::Status RunServe(const ServeConfig& config, std::ostream& out) {
  ServedRun run{config.run, flags::FlagsOfTraining(config.run.train.model_dir), config.top_k};
  if (config.ratings_file) run.trained["ratings_file"] = *config.ratings_file;
  if (config.vocab_file) run.trained["vocab_file"] = *config.vocab_file;
  ASSIGN_OR_RETURN(const std::string model, ModelOfRun(run));
  ModelServerOptions options = config.server;
  if (options.model_name.empty()) options.model_name = model;
  std::optional<std::string> latest = train::LatestCheckpointName(run.config.train.model_dir);
  ASSIGN_OR_RETURN(std::unique_ptr<Servable> servable, OpenWarm(model, run));
  NewCheckpoints checkpoints(model, run, *servable, std::move(latest));
  const int64_t version = servable->version();
  ModelServer models(options, std::move(servable));
  ASSIGN_OR_RETURN(const auto server, HttpServer::Listen(config.http, [&](HttpRequest request, HttpServer::Done done) {
                     models.Handle(std::move(request), std::move(done));
                   }));
  TellAddress(config, options.model_name, version, server->port(), out);
  HttpServer::End end;
  std::thread network([&] {
    end = server->Run([&] {
      LOG(INFO) << "stopping: answering the requests that have begun";
      models.Hurry();
    });
    models.Stop();
  });
  absl::Cleanup join = [&] { network.join(); };
  models.Serve(config.poll_wait.count() > 0 ? config.poll_wait : std::chrono::hours(24),
               [&] { return config.poll_wait.count() > 0 ? checkpoints.Open() : nullptr; });
  std::move(join).Invoke();
  return EndBySignal(end);
}

}  // namespace official::serve
