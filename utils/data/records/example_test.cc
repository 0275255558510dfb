#include "utils/data/records/example.h"

#include <catch2/catch.hpp>
#include <string>

#include "utils/protos/example.pb.h"

namespace official::data {
namespace {

using Catch::Contains;

// Written by protobuf itself.
std::string Serialized() {
  tensorflow::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  features["image"].mutable_bytes_list()->add_value(std::string("\0\xff", 2));
  features["label"].mutable_int64_list()->add_value(-7);
  for (const float value : {0.5f, -1.0f}) features["boxes"].mutable_float_list()->add_value(value);
  features["no boxes"].mutable_float_list();
  features["two"].mutable_int64_list()->add_value(1);
  features["two"].mutable_int64_list()->add_value(300);
  features["nothing"];
  return example.SerializeAsString();
}

ExampleView Parse(const std::string& bytes) { return ExampleView::Parse(bytes).value(); }

// A length-delimited field of less than 128 bytes.
std::string Field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string ExampleOf(const std::string& entries) { return Field(1, entries); }
std::string Entry(const std::string& name, const std::string& feature) {
  return Field(1, Field(1, name) + Field(2, feature));
}

std::string MessageOf(const absl::Status& status) {
  CHECK(absl::IsDataLoss(status));
  return std::string(status.message());
}

TEST_CASE("Values are found in what protobuf writes") {
  const std::string bytes = Serialized();
  const ExampleView example = Parse(bytes);
  CHECK(example.Bytes("image").value() == absl::string_view("\0\xff", 2));
  CHECK(example.Bytes("image").value().data() >= bytes.data());  // nothing is copied
  CHECK(example.Bytes("image").value().data() < bytes.data() + bytes.size());
  CHECK(example.Int64("label").value() == -7);
  std::vector<int64_t> integers = {9};
  REQUIRE(example.Int64s("two", &integers).ok());
  CHECK(integers == std::vector<int64_t>{1, 300});
  CHECK(MessageOf(example.Int64s("nothing", &integers)) == "feature nothing is missing");
  CHECK(MessageOf(example.Int64s("image", &integers)) == "feature image is a list of bytes, expected int64");
  std::vector<float> floats = {9};
  REQUIRE(example.Floats("boxes", &floats).ok());
  CHECK(floats == std::vector<float>{0.5f, -1.0f});
  for (const char* name : {"no boxes", "nothing", "not there"}) {
    REQUIRE(example.Floats(name, &floats).ok());
    CHECK(floats.empty());
  }
}

TEST_CASE("Lists need not be packed, and the last of two features with a name counts") {
  const std::string unpacked_floats = std::string("\x0d\0\0\x80\x3f", 5) + std::string("\x0d\0\0\0\x40", 5);  // 1, 2
  const std::string bytes = ExampleOf(Entry("x", Field(2, unpacked_floats)) + Entry("n", Field(3, "\x08\x05"))) +
                            ExampleOf(Entry("n", Field(3, "\x08\x06")));
  const ExampleView example = Parse(bytes);
  std::vector<float> floats;
  REQUIRE(example.Floats("x", &floats).ok());
  CHECK(floats == std::vector<float>{1, 2});
  CHECK(example.Int64("n").value() == 6);
}

TEST_CASE("Fields that are not known are passed over") {
  const std::string unknown = std::string("\x18\x96\x01", 3) +
                              std::string(
                                  "\x21"
                                  "12345678") +
                              "\x2d"
                              "1234" +
                              Field(9, "abc");
  const std::string bytes = unknown + ExampleOf(unknown + Entry("n", unknown + Field(3, "\x08\x05")));
  CHECK(Parse(bytes).Int64("n").value() == 5);
}

TEST_CASE("A missing feature, another kind and another number of values are errors that name the feature") {
  const std::string bytes = Serialized();
  const ExampleView example = Parse(bytes);
  CHECK(MessageOf(example.Bytes("not there").status()) == "feature not there is missing");
  CHECK(MessageOf(example.Int64("nothing").status()) == "feature nothing is missing");
  CHECK(MessageOf(example.Bytes("label").status()) == "feature label is a list of int64, expected bytes");
  CHECK(MessageOf(example.Int64("two").status()) == "feature two has 2 values, expected 1");
  std::vector<float> floats;
  CHECK(MessageOf(example.Floats("image", &floats)) == "feature image is a list of bytes, expected float");
}

TEST_CASE("Damaged bytes are refused") {
  const std::string bytes = Serialized();
  CHECK_THAT(MessageOf(ExampleView::Parse(bytes.substr(0, bytes.size() - 1)).status()), Contains("not a tf.Example"));
  CHECK_THAT(MessageOf(ExampleView::Parse("\xff\xd8\xff\xe0, an image").status()), Contains("not a tf.Example"));
  CHECK_THAT(MessageOf(ExampleView::Parse(std::string(12, '\x80')).status()), Contains("not a tf.Example"));
  CHECK_THAT(MessageOf(ExampleView::Parse(ExampleOf("\x0a\x7f")).status()), Contains("map of features"));
  CHECK_THAT(MessageOf(ExampleView::Parse(ExampleOf(Field(1,
                                                          "\x0a\x05"
                                                          "ab")))
                           .status()),
             Contains("a feature"));
  CHECK(MessageOf(ExampleView::Parse(ExampleOf(Entry("n", "\x1a\x05"))).status()) == "feature n cannot be parsed");
  const std::string bad_list = ExampleOf(Entry("n", Field(3, "\x0a\x01\x80")) + Entry("x", Field(2, Field(1, "abc"))));
  CHECK(MessageOf(Parse(bad_list).Int64("n").status()) == "feature n cannot be parsed");
  std::vector<float> floats;
  CHECK(MessageOf(Parse(bad_list).Floats("x", &floats)) == "feature x cannot be parsed");
}

}  // namespace
}  // namespace official::data
