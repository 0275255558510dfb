#include "official/serve/model_server.h"

#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/serve/repeated_call.h"
#include "utils/compute/core/tensor.h"

namespace official::serve {
namespace {

using Catch::Contains;
using std::chrono::hours;
using std::chrono::milliseconds;

// Has its inputs as outputs, and calls a function for each example that it prepares.
class Echo : public Servable {
 public:
  explicit Echo(std::function<void()> preparing = [] {}) : preparing_(std::move(preparing)) {}

  const Signature& signature() const override { return signature_; }
  int64_t version() const override { return 1; }
  absl::StatusOr<Values> Prepare(Values example) const override {
    preparing_();
    return example;
  }
  absl::StatusOr<std::vector<Values>> Run(absl::Span<const Values> examples) override {
    return std::vector<Values>(examples.begin(), examples.end());
  }

 private:
  const std::function<void()> preparing_;
  const Signature signature_ = {.name = "echo",
                                .inputs = {{"x", compute::DType::kFloat32, {2}}},
                                .outputs = {{"y", compute::DType::kFloat32, {2}}}};
};

// Prepares an example as its version, and answers ten times what was prepared, plus its version.
class Versioned : public Servable {
 public:
  explicit Versioned(int64_t version) : version_(version) {}

  const Signature& signature() const override { return signature_; }
  int64_t version() const override { return version_; }
  absl::StatusOr<Values> Prepare(Values) const override { return Values{compute::Tensor::Scalar<int64_t>(version_)}; }
  absl::StatusOr<std::vector<Values>> Run(absl::Span<const Values> examples) override {
    std::vector<Values> outputs;
    for (const Values& example : examples) {
      const auto prepared = std::get<compute::Tensor>(example[0]).scalar<int64_t>();
      outputs.push_back({compute::Tensor::Scalar<int64_t>(10 * prepared + version_)});
    }
    return outputs;
  }

 private:
  const int64_t version_;
  const Signature signature_ = {.name = "versioned",
                                .inputs = {{"x", compute::DType::kFloat32, {2}}},
                                .outputs = {{"y", compute::DType::kInt64, {}}}};
};

ModelServerOptions WithTimeout(milliseconds timeout) {
  ModelServerOptions options;
  options.model_name = "m";
  options.request_timeout = timeout;
  return options;
}

std::future<HttpResponse> Ask(ModelServer& server, size_t num_examples,
                              const std::string& path = "/v1/models/m:predict") {
  const std::vector<absl::string_view> examples(num_examples, "[0, 0]");  // each 8 bytes of float32
  const std::string body = absl::StrCat(R"({"instances": [)", absl::StrJoin(examples, ","), "]}");
  const auto answer = std::make_shared<std::promise<HttpResponse>>();
  server.Handle({"POST", path, body}, [answer](HttpResponse response) { answer->set_value(std::move(response)); });
  return answer->get_future();
}

TEST_CASE("examples of more bytes than the limits are refused, of a request and of all together") {
  ModelServerOptions options = WithTimeout(hours(1));
  options.batcher = {.max_batch_size = 100, .batch_timeout = hours(1)};
  options.max_request_example_bytes = 80;
  options.max_total_example_bytes = 100;
  ModelServer server(options, std::make_unique<Echo>());
  std::thread serve([&] { server.Serve(); });
  const HttpResponse large = Ask(server, 11).get();
  CHECK(large.status == 413);
  CHECK_THAT(large.body, Contains("the 11 examples have 88 bytes when decoded, more than 80"));
  std::future<HttpResponse> waits = Ask(server, 10);
  const HttpResponse beyond = Ask(server, 3).get();
  CHECK(beyond.status == 503);
  CHECK_THAT(beyond.body, Contains("try again later"));
  server.Hurry();
  CHECK(waits.get().status == 200);
  // There is room again.
  CHECK(Ask(server, 10).get().status == 200);
  server.Stop();
  serve.join();
}

TEST_CASE("one example is taken whatever the limits are") {
  ModelServerOptions options = WithTimeout(hours(1));
  options.max_request_example_bytes = options.max_total_example_bytes = 1;
  ModelServer server(options, std::make_unique<Echo>());
  std::thread serve([&] { server.Serve(); });
  CHECK(Ask(server, 1).get().status == 200);
  server.Stop();
  serve.join();
}

TEST_CASE("a request whose time is over is not prepared to its end") {
  int num_prepared = 0;
  ModelServer server(WithTimeout(milliseconds(10)), std::make_unique<Echo>([&] {
                       ++num_prepared;
                       std::this_thread::sleep_for(milliseconds(20));
                     }));
  CHECK(Ask(server, 50).get().status == 504);
  CHECK(num_prepared <= 1);
  server.Stop();
}

TEST_CASE("requests are answered while another servable is opened, and then by that one") {
  ModelServer server(WithTimeout(hours(1)), std::make_unique<Versioned>(1));
  std::thread serve([&] { server.Serve(); });
  std::promise<void> opening, opened, replaced;
  int num_calls = 0;
  const RepeatedCall follow(milliseconds(1), [&] {
    if (++num_calls > 1) return;
    opening.set_value();
    opened.get_future().wait();
    server.Replace(std::make_unique<Versioned>(2));
    replaced.set_value();
  });
  opening.get_future().wait();
  CHECK_THAT(Ask(server, 1).get().body, Contains("11\n"));
  opened.set_value();
  replaced.get_future().wait();
  CHECK_THAT(Ask(server, 1).get().body, Contains("22\n"));
  server.Stop();
  serve.join();
}

TEST_CASE("a request is prepared, run and answered by the servable that was there when it came") {
  ModelServerOptions options = WithTimeout(hours(1));
  options.num_request_threads = 1;  // requests are added in their order
  options.batcher = {.max_batch_size = 100, .batch_timeout = hours(1)};
  ModelServer server(options, std::make_unique<Versioned>(1));
  std::thread serve([&] { server.Serve(); });
  std::future<HttpResponse> before = Ask(server, 2, "/v1/models/m/versions/1:predict");
  server.Replace(std::make_unique<Versioned>(2));
  CHECK(Ask(server, 1, "/v1/models/m/versions/1:predict").get().status == 404);
  // Ends the wait of the other one, whose batch it cannot be in.
  std::future<HttpResponse> after = Ask(server, 1);
  const HttpResponse first = before.get();
  CHECK(first.status == 200);
  CHECK_THAT(first.body, Contains("11,\n        11\n"));
  server.Hurry();
  CHECK_THAT(after.get().body, Contains("22\n"));
  server.Stop();
  serve.join();
}

TEST_CASE("Stop does not wait for the examples of a request") {
  int num_prepared = 0;
  std::promise<void> first;
  ModelServer server(WithTimeout(hours(1)), std::make_unique<Echo>([&] {
                       if (++num_prepared == 1) first.set_value();
                       std::this_thread::sleep_for(milliseconds(1));
                     }));
  std::future<HttpResponse> answer = Ask(server, 10000);
  first.get_future().wait();
  server.Stop();
  CHECK(answer.get().status == 503);
  CHECK(num_prepared < 10000);
}

}  // namespace
}  // namespace official::serve
