#include "official/serve/rest_api.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace official::serve {
namespace {

using Catch::Contains;
using compute::DType;
using compute::Tensor;
using Json = nlohmann::json;

const Signature kImage = {.name = "classify",
                          .inputs = {{"image", DType::kFloat32, {2, 3}}},
                          .outputs = {{"classes", DType::kInt64, {}}, {"probabilities", DType::kFloat32, {2}}}};
const Signature kTwo = {
    .name = "predict", .inputs = {{"user", DType::kInt32, {}}, {"text", {}, {}}}, .outputs = {{"answer", {}, {}}}};

constexpr char kRows[] = "[[0, 0.5, 1], [2, -3e1, 1e-2]]";

std::string Error(const std::string& body, const Signature& signature = kImage) {
  const auto request = ParsePredict(body, signature);
  REQUIRE_FALSE(request.ok());
  CHECK(absl::IsInvalidArgument(request.status()));
  CHECK_THAT(std::string(request.status().message()), !Contains("\n"));
  CHECK(request.status().message().size() < 600);
  return std::string(request.status().message());
}

std::vector<float> Floats(const Value& value) {
  const auto floats = std::get<Tensor>(value).flat<float>();
  return {floats.begin(), floats.end()};
}

TEST_CASE("an example in row and in column format, named and not, is the same") {
  for (const std::string& body :
       {absl::StrCat(R"({"instances": [)", kRows, "]}"), absl::StrCat(R"({"instances": [{"image": )", kRows, "}]}"),
        absl::StrCat(R"({"inputs": [)", kRows, "]}"), absl::StrCat(R"({"inputs": {"image": [)", kRows, "]}}"),
        absl::StrCat(R"({"signature_name": "classify", "instances": [)", kRows, "]}"),
        absl::StrCat(R"({"signature_name": "serving_default", "instances": [)", kRows, "]}")}) {
    INFO(body);
    const auto request = ParsePredict(body, kImage);
    REQUIRE(request.ok());
    CHECK(request->format == (body.find("instances") == std::string::npos ? Format::kColumn : Format::kRow));
    REQUIRE(request->examples.size() == 1);
    CHECK(std::get<Tensor>(request->examples[0][0]).shape() == compute::Shape({2, 3}));
    CHECK(Floats(request->examples[0][0]) == std::vector<float>{0, 0.5, 1, 2, -30, 0.01f});
  }
}

TEST_CASE("base64 is bytes, of numbers and of text") {
  const auto image = ParsePredict(R"({"instances": [{"b64": "AP9h"}, {"image": {"b64": ""}}]})", kImage);
  REQUIRE(image.ok());
  CHECK(std::get<std::string>(image->examples[0][0]) == std::string("\0\xff"
                                                                    "a",
                                                                    3));
  CHECK(std::get<std::string>(image->examples[1][0]).empty());
  CHECK_THAT(Error(R"({"instances": [{"b64": "!"}]})"), Contains("instances[0].b64 is not base64"));
  CHECK_THAT(Error(R"({"instances": [{"b64": 1}]})"), Contains("instances[0].b64 is not base64"));
}

TEST_CASE("several inputs, in rows and in columns") {
  const auto rows =
      ParsePredict(R"({"instances": [{"user": 1, "text": "a"}, {"text": "b", "user": -2147483648}]})", kTwo);
  const auto columns = ParsePredict(R"({"inputs": {"user": [1, -2147483648], "text": ["a", "b"]}})", kTwo);
  for (const auto* request : {&rows, &columns}) {
    REQUIRE(request->ok());
    REQUIRE((*request)->examples.size() == 2);
    CHECK(std::get<Tensor>((*request)->examples[1][0]).scalar<int32_t>() == -2147483648);
    CHECK(std::get<std::string>((*request)->examples[1][1]) == "b");
  }
  CHECK_THAT(Error(R"({"inputs": {"user": [1, 2], "text": ["a"]}})", kTwo),
             Contains("inputs.text has 1 examples, inputs.user has 2"));
  CHECK_THAT(Error(R"({"instances": [{"user": 1}]})", kTwo), Contains(R"(instances[0] has no "text")"));
  CHECK_THAT(Error(R"({"instances": [1]})", kTwo),
             Contains("needs to be an object with the inputs of predict: user, text"));
  CHECK_THAT(Error(R"({"instances": [{"user": 1, "text": 2}]})", kTwo),
             Contains("instances[0].text is 2; text needs a string"));
}

TEST_CASE("numbers that the type does not have are refused") {
  const auto user = [](const std::string& number) {
    return Error(absl::StrCat(R"({"instances": [{"user": )", number, R"(, "text": ""}]})"), kTwo);
  };
  for (const char* number : {"2147483648", "-2147483649", "18446744073709551615", "1.5", "1.0", "true", "null"}) {
    CHECK_THAT(user(number), Contains("needs a number of int32"));
  }
  const auto pixel = [](const std::string& number) {
    return Error(absl::StrCat(R"({"instances": [[[0, 0, 0], [0, )", number, ", 0]]]}"));
  };
  CHECK_THAT(pixel("1e39"), Contains("instances[0][1][1] is 1e+39") && Contains("float32"));
  CHECK_THAT(pixel("\"1\""), Contains("instances[0][1][1] is a string"));
  CHECK_THAT(pixel("null"), Contains("instances[0][1][1] is null"));
  CHECK_THAT(pixel("1e400"), Contains("out of the range"));
  for (const char* number : {"NaN", "Infinity", "-Infinity", "01", "+1", ".5", "0x1"}) {
    CHECK_THAT(pixel(number), Contains("JSON Parse error at byte"));
  }
}

TEST_CASE("another shape is refused with the place") {
  CHECK_THAT(Error(R"({"instances": [[[0, 0, 0]]]})"),
             Contains("instances[0] is a list of 1; image is float32[2,3], so it needs a list of 2"));
  CHECK_THAT(Error(R"({"instances": [[[0, 0, 0], [0, 0]]]})"), Contains("instances[0][1] is a list of 2"));
  CHECK_THAT(Error(R"({"instances": [[[0, 0, [0]], [0, 0, 0]]]})"), Contains("instances[0][0][2] is a list of 1"));
  CHECK_THAT(Error(R"({"instances": [5]})"), Contains("instances[0] is 5"));
  CHECK_THAT(Error(R"({"instances": [{"picture": 1}]})"), Contains(R"(instances[0] has no "image")"));
  CHECK_THAT(Error(absl::StrCat(R"({"instances": [{"x": 1, "image": )", kRows, "}]}")),
             Contains(R"(instances[0] has "x"; the inputs of classify are image)"));
  CHECK_THAT(Error(R"({"instances": []})"), Contains("instances needs to be a list of at least one example"));
  CHECK_THAT(Error(R"({"instances": 3})"), Contains("instances needs to be a list"));
  std::string many = R"({"instances": [0)";
  for (size_t i = 0; i < kMaxExamples; ++i) many += ",0";
  CHECK_THAT(Error(many + "]}"), Contains("instances has 10001 examples"));
}

TEST_CASE("bodies that are no requests are refused") {
  CHECK_THAT(Error(""), Contains("JSON Parse error at byte"));
  CHECK_THAT(Error("[]"), Contains("needs to be a JSON object"));
  CHECK_THAT(Error("{}"), Contains("Missing 'inputs' or 'instances' key"));
  CHECK_THAT(Error(R"({"instances": [1], "inputs": [1]})"), Contains("Both 'inputs' and 'instances'"));
  CHECK_THAT(Error(R"({"instance": [1]})"), Contains(R"(unknown key "instance")"));
  CHECK_THAT(Error(R"({"signature_name": "other", "instances": [1]})"),
             Contains(R"(Serving signature name: "other" not found in signature def)"));
  CHECK_THAT(Error(R"({"signature_name": 1, "instances": [1]})"), Contains("signature_name needs to be a string"));
  CHECK_THAT(Error("{\"instances\": [\"\xff\"]}"), Contains("JSON Parse error"));
  CHECK_THAT(Error("{\"a\\u0000\\n" + std::string(100000, 'a') + "\": 1}"), Contains("unknown key"));
}

TEST_CASE("deep nesting is refused before it is parsed, and brackets in strings do not count") {
  for (const char bracket : {'[', '{'}) {
    CHECK_THAT(Error(std::string(10'000'000, bracket)), Contains("nested more than 64 deep"));
  }
  const auto text = ParsePredict(
      absl::StrCat(R"({"instances": [{"user": 1, "text": "\"\\)", std::string(1000, '['), R"("}]})"), kTwo);
  REQUIRE(text.ok());
  CHECK(std::get<std::string>(text->examples[0][1]) == "\"\\" + std::string(1000, '['));
}

TEST_CASE("responses have the format of the request, and floats that read back as the same") {
  const std::vector<Values> predictions = {{Tensor::Scalar<int64_t>(1), Tensor::Of<float>({2}, {0.1f, 1e-10f})},
                                           {Tensor::Scalar<int64_t>(-3), Tensor::Of<float>({2}, {1.0f, 16777216.0f})}};
  const Json rows = Json::parse(PredictResponse(Format::kRow, kImage, predictions));
  REQUIRE(rows["predictions"].size() == 2);
  CHECK(rows["predictions"][1]["classes"] == -3);
  CHECK(rows["predictions"][0]["probabilities"][0].get<float>() == 0.1f);
  CHECK(rows["predictions"][0]["probabilities"][1].get<float>() == 1e-10f);
  const Json columns = Json::parse(PredictResponse(Format::kColumn, kImage, predictions));
  CHECK(columns["outputs"]["classes"] == Json({1, -3}));
  CHECK(columns["outputs"]["probabilities"][1][1] == 16777216);
  const std::vector<Values> texts = {{std::string("\"a\"\n\xc3\xa4")}};
  CHECK(Json::parse(PredictResponse(Format::kRow, kTwo, texts))["predictions"][0] == "\"a\"\n\xc3\xa4");
  CHECK(Json::parse(PredictResponse(Format::kColumn, kTwo, texts))["outputs"][0] == "\"a\"\n\xc3\xa4");
  CHECK(Json::parse(ErrorResponse("a \"b\""))["error"] == "a \"b\"");
}

TEST_CASE("status and metadata are those of TensorFlow Serving") {
  const Json status = Json::parse(StatusResponse(600));
  CHECK(status == Json::parse(R"({"model_version_status": [{"version": "600", "state": "AVAILABLE",
                                  "status": {"error_code": "OK", "error_message": ""}}]})"));
  const Json metadata = Json::parse(MetadataResponse("m", 600, kImage));
  CHECK(metadata["model_spec"] == Json::parse(R"({"name": "m", "signature_name": "", "version": "600"})"));
  const Json& defs = metadata["metadata"]["signature_def"]["signature_def"];
  CHECK(defs["serving_default"] == defs["classify"]);
  CHECK(defs["classify"]["inputs"]["image"] == Json::parse(R"({"dtype": "DT_FLOAT", "name": "image:0",
      "tensor_shape": {"dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}, {"size": "3", "name": ""}],
                       "unknown_rank": false}})"));
  CHECK(defs["classify"]["outputs"]["classes"]["dtype"] == "DT_INT64");
}

TEST_CASE("paths") {
  const auto predict = ParsePath("/v1/models/mnist:predict");
  REQUIRE(predict);
  CHECK((predict->model == "mnist" && predict->method == Method::kPredict && !predict->version));
  const auto version = ParsePath("/v1/models/a/versions/12/metadata?x=/y");
  REQUIRE(version);
  CHECK((version->model == "a" && version->method == Method::kMetadata && version->version == 12));
  CHECK(ParsePath("/v1/models/a")->method == Method::kStatus);
  for (const char* target : {"http://host:8501/v1/models/a", "HTTPS://h/v1/models/a?x=http://b/"}) {
    const auto absolute = ParsePath(target);
    REQUIRE(absolute);
    CHECK(absolute->model == "a");
  }
  for (const char* target :
       {"", "/", "/v1/models/", "/v1/models/:predict", "/v1/models/a:explain", "/v2/models/a", "/v1/models/a/versions/",
        "/v1/models/a/versions/x", "/v1/models/a/b", "/v1/models/a/versions/99999999999999999999", "*", "http://host",
        "ftp://host/v1/models/a"}) {
    INFO(target);
    CHECK_FALSE(ParsePath(target));
  }
}

}  // namespace
}  // namespace official::serve
