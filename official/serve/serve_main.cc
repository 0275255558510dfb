// serve_main: answers requests with a trained model, by TensorFlow Serving's REST API.
#include <chrono>
#include <iostream>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "official/serve/serve_run.h"
#include "utils/compute/core/status.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/console.h"
#include "utils/flags/main.h"
#include "utils/flags/shared_groups.h"
#include "utils/train/options.h"

ABSL_FLAG(std::string, host, "127.0.0.1",
          "IP address to listen on. Only programs of this machine reach 127.0.0.1; there is no encryption and no "
          "password, so give another one in a network that you trust only.");
ABSL_FLAG(int, rest_api_port, 8501, "Port to listen on; 0: any free one. The program prints it.");
ABSL_FLAG(int, rest_api_timeout_in_ms, 30000,
          "Milliseconds after which a request that still waits is answered with an error. Also the time that a client "
          "has to send a request, and to take its response, before it is disconnected.");
ABSL_FLAG(std::string, model_name, "", "Name of the model in URLs; default mnist, resnet, ncf or transformer.");
ABSL_FLAG(int, max_batch_size, 32, "Largest number of examples that are computed together.");
ABSL_FLAG(
    int, batch_timeout_micros, 0,
    "Microseconds that an example may wait for others that would fill its batch. 0: what arrives while a batch is "
    "computed is the next batch.");
ABSL_FLAG(int, num_request_threads, 2, "Threads that parse requests and decode images.");
ABSL_FLAG(int, max_connections, 256, "Clients that are connected at a time; others wait.");
ABSL_FLAG(int, max_pending_requests, 256,
          "Requests that wait or are computed at a time; a further one is answered with status 503.");
ABSL_FLAG(int64_t, max_request_bytes, 16 << 20, "Largest body of a request; a larger one is answered with status 413.");
ABSL_FLAG(int, top_k, 10, "Number of items for each user, of a network that ncf_main has trained.");
ABSL_FLAG(std::optional<std::string>, ratings_file, std::nullopt,
          "Ratings file that ncf_main was given, if it is not there any more.");
ABSL_FLAG(std::optional<std::string>, vocab_file, std::nullopt,
          "Vocabulary file that transformer_main was given, if it is not there any more.");
ABSL_FLAG(int, file_system_poll_wait_seconds, 1,
          "Seconds between two looks for a new checkpoint in --model_dir, which is then served; 0: never.");

namespace official::serve {
namespace {

// Clients would write other characters as %20, or a path would end at them.
absl::Status CheckModelName(const flags::CommandLine&) {
  for (const char c : absl::GetFlag(FLAGS_model_name)) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-._~", c)) continue;
    return flags::FlagError("model_name", "a name in a URL has letters, digits and - . _ ~ only");
  }
  return absl::OkStatus();
}

flags::Program ServeProgram() {
  return {
      .name = "serve_main",
      .description =
          "Serves what a training program has trained in --model_dir, by the REST API of TensorFlow Serving: "
          "classes of images, items for users, translations of sentences, as JSON over HTTP.",
      .examples = {{"serve_main --model_dir=run1", "serve the latest checkpoint on port 8501 of this machine"},
                   {"curl http://127.0.0.1:8501/v1/models/mnist", "ask whether the model is there"},
                   {"serve_main -md run1 --rest_api_port=0 --output=json",
                    "take any free port, and print it in a JSON object"}},
      .defaults = {{"model_dir", ""}},
      .flags = {.name = "serve",
                .flags = {{.name = "model_dir",
                           .short_name = "md",
                           .key = true,
                           .required = true,
                           .help = "Directory of a training: its latest checkpoint is served."},
                          {.name = "model_name", .key = true},
                          {.name = "host", .key = true, .required = true},
                          {.name = "rest_api_port", .key = true, .range = {.min = 0, .max = 65535}},
                          {.name = "rest_api_timeout_in_ms", .key = true, .range = flags::AtLeast(1)},
                          {.name = "max_batch_size", .key = true, .range = {.min = 1, .max = 65536}},
                          {.name = "batch_timeout_micros", .key = true, .range = flags::AtLeast(0)},
                          {.name = "num_request_threads", .range = {.min = 1, .max = 256}},
                          {.name = "max_connections", .range = flags::AtLeast(1)},
                          {.name = "max_pending_requests", .range = flags::AtLeast(1)},
                          {.name = "max_request_bytes", .range = {.min = 1, .max = 1 << 30}},
                          {.name = "file_system_poll_wait_seconds", .key = true, .range = flags::AtLeast(0)},
                          {.name = "top_k", .key = true, .range = flags::AtLeast(1)},
                          {.name = "ratings_file", .key = true, .unset_means = "that of the training"},
                          {.name = "vocab_file", .key = true, .unset_means = "that of the training"},
                          {.name = "num_gpus",
                           .short_name = "ng",
                           .key = true,
                           .unset_means = "1 if there is a GPU, else 0",
                           .help = "1 computes on a GPU, 0 on the CPU."},
                          {.name = "dtype",
                           .short_name = "dt",
                           .key = true,
                           .choices = {"fp16", "bf16", "fp32"},
                           .help = "Precision of the computation."},
                          flags::SharedFlag("intra_op_parallelism_threads"),
                          flags::OutputFlag(),
                          flags::LogFormatFlag()},
                .validators = {CheckModelName}},
      .shared_flags = false,
  };
}

absl::Status Main(const flags::CommandLine& command_line) {
  RETURN_IF_ERROR(flags::StartLog());
  const std::chrono::milliseconds timeout(absl::GetFlag(FLAGS_rest_api_timeout_in_ms));
  const auto max_body = static_cast<size_t>(absl::GetFlag(FLAGS_max_request_bytes));
  ServeConfig config;
  config.run.base = flags::FromFlags<flags::BaseConfig>();
  config.run.train = flags::FromFlags<train::TrainOptions>();
  config.run.performance = flags::FromFlags<flags::PerformanceConfig>();
  config.run.program = command_line.program();
  config.top_k = absl::GetFlag(FLAGS_top_k);
  config.ratings_file = absl::GetFlag(FLAGS_ratings_file);
  config.vocab_file = absl::GetFlag(FLAGS_vocab_file);
  config.http = {.host = absl::GetFlag(FLAGS_host),
                 .port = absl::GetFlag(FLAGS_rest_api_port),
                 .max_connections = static_cast<size_t>(absl::GetFlag(FLAGS_max_connections)),
                 .max_body_bytes = max_body,
                 .max_total_bytes = 16 * max_body,
                 .timeout = timeout};
  config.server = {.model_name = absl::GetFlag(FLAGS_model_name),
                   .batcher = {.max_batch_size = static_cast<size_t>(absl::GetFlag(FLAGS_max_batch_size)),
                               .batch_timeout = std::chrono::microseconds(absl::GetFlag(FLAGS_batch_timeout_micros))},
                   .num_request_threads = absl::GetFlag(FLAGS_num_request_threads),
                   .max_pending_requests = static_cast<size_t>(absl::GetFlag(FLAGS_max_pending_requests)),
                   .max_request_example_bytes = 16 * max_body,
                   .max_total_example_bytes = 64 * max_body,
                   .request_timeout = timeout};
  config.poll_wait = std::chrono::seconds(absl::GetFlag(FLAGS_file_system_poll_wait_seconds));
  config.json = flags::WantsJson();
  return RunServe(config, std::cout);
}

}  // namespace
}  // namespace official::serve

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::serve::ServeProgram(), official::serve::Main);
}
