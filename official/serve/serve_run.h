// All of serve_main except its command line.
#pragma once

#include <chrono>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "official/serve/http_server.h"
#include "official/serve/model_server.h"
#include "official/serve/servable/served_run.h"

namespace official::serve {

struct ServeConfig {
  run::Config run;
  int top_k = 10;  // the number of items for a user of ncf
  // Files that are no longer where the training had them: ratings, of ncf, and vocabulary, of transformer.
  std::optional<std::string> ratings_file, vocab_file;
  HttpOptions http;
  ModelServerOptions server;  // model_name empty: the model's
  // The time between two looks for a new checkpoint; 0: none is looked for.
  std::chrono::seconds poll_wait{1};
  bool json = false;  // --output=json
};

// Opens the latest checkpoint in model_dir and serves it until a signal to stop. As soon as it listens, a line with the
// URL goes to `out`. Returns Cancelled, after the requests that had begun are answered or their time is over, which the
// message tells; then the process is to end by that signal. Errors: those of ModelOfRun, OpenRun and
// HttpServer::Listen.
absl::Status RunServe(const ServeConfig& config, std::ostream& out);

}  // namespace official::serve
