#include "utils/train/summary/event_writer.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "utils/data/png.h"
#include "utils/files/files.h"
#include "utils/protos/event.pb.h"

namespace official::train {
namespace {

using SessionStatus = EventWriter::SessionStatus;

std::string NewDirectory() {
  static int counter = 0;
  const char* directory = std::getenv("TEST_TMPDIR");
  return absl::StrCat(directory ? directory : "/tmp", "/events-", getpid(), "-", ++counter);
}

std::vector<tensorflow::Event> ReadEvents(const std::string& path) {
  auto reader = data::TFRecordReader::Open(path).value();
  std::vector<tensorflow::Event> events;
  std::string record;
  while (reader->Next(&record).value()) REQUIRE(events.emplace_back().ParseFromString(record));
  return events;
}

// The events after the first, which each tests below has written through `add`.
template <typename Add>
std::vector<tensorflow::Event> Written(Add add) {
  auto writer = EventWriter::Open(NewDirectory()).value();
  REQUIRE(add(*writer).ok());
  REQUIRE(writer->Close().ok());
  std::vector<tensorflow::Event> events = ReadEvents(writer->path());
  events.erase(events.begin());
  return events;
}

TEST_CASE("A file has TensorFlow's name and first record, visible at once") {
  const std::string directory = NewDirectory();
  const double now = static_cast<double>(std::time(nullptr));
  const auto writer = EventWriter::Open(directory).value();
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const std::string name = files::ListDirectory(directory).value().at(0);
  CHECK(writer->path() == directory + "/" + name);
  REQUIRE(name.substr(0, 20) == "events.out.tfevents.");
  CHECK(std::stod(name.substr(20, 10)) >= now);
  CHECK(name.substr(30) == absl::StrCat(".", host));
  const std::vector<tensorflow::Event> events = ReadEvents(writer->path());
  REQUIRE(events.size() == 1);
  CHECK(events[0].file_version() == "brain.Event:2");
  CHECK(events[0].wall_time() >= now);
  CHECK(events[0].wall_time() < now + 100);
}

TEST_CASE("Two writers of one second do not share a file") {
  const std::string directory = NewDirectory();
  const auto first = EventWriter::Open(directory).value();
  const auto second = EventWriter::Open(directory).value();
  CHECK(first->path() < second->path());
  CHECK(files::ListDirectory(directory).value().size() == 2);
}

TEST_CASE("A file is read after those that are there, also where the clock was set back") {
  const std::string directory = NewDirectory();
  REQUIRE(files::MakeDirectories(directory).ok());
  // Of another host in the year 2286, and two whose names have no such seconds.
  for (const char* const name :
       {"events.out.tfevents.9999999990.zz", "events.out.tfevents.a.zz", "events.out.tfevents.99"}) {
    REQUIRE(files::WriteFileAtomically(directory + "/" + name, "").ok());
  }
  const auto first = EventWriter::Open(directory).value();
  CHECK_THAT(first->path(), Catch::Matchers::StartsWith(directory + "/events.out.tfevents.9999999991."));
  CHECK(EventWriter::Open(directory).value()->path() > first->path());
}

TEST_CASE("Scalars of one step are one event") {
  const auto events = Written([](EventWriter& writer) {
    return writer.AddScalars(100, {{"loss", 0.5f}, {"accuracy", std::numeric_limits<float>::quiet_NaN()}});
  });
  REQUIRE(events.size() == 1);
  CHECK(events[0].step() == 100);
  // Field 1 of Summary: tag (1) and simple_value (2), each by hand.
  CHECK(absl::BytesToHexString(events[0].summary().value(0).SerializeAsString()) ==
        "0a046c6f7373"
        "150000003f");
  CHECK(events[0].summary().value(1).tag() == "accuracy");
  CHECK(std::isnan(events[0].summary().value(1).simple_value()));
}

// The pixels of the only image that the writer is given, after the writer's scaling.
std::vector<int> Scaled(const compute::Tensor& images) {
  const auto events = Written([&](EventWriter& writer) { return writer.AddImages(1, "x", images, 1); });
  const std::string path = NewDirectory();
  REQUIRE(files::WriteFileAtomically(path, events.at(0).summary().value(0).image().encoded_image_string()).ok());
  const compute::Tensor image = data::ReadPng(path).value();
  return {image.data<uint8_t>(), image.data<uint8_t>() + image.num_elements()};
}

// The first two: what tf.summary.image of TensorFlow 1.10 gives.
TEST_CASE("Images are scaled one by one, as TensorFlow does") {
  using compute::Tensor;
  using Pixels = std::vector<int>;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(Scaled(Tensor::Of<float>({1, 1, 3, 1}, {-2, 0, 1})) == Pixels{1, 128, 191});
  CHECK(Scaled(Tensor::Of<float>({1, 1, 3, 1}, {0, 1, 4})) == Pixels{0, 63, 255});
  CHECK(Scaled(Tensor::Of<float>({1, 2, 1, 1}, {0, 0})) == Pixels{0, 0});
  CHECK(Scaled(Tensor::Of<float>({1, 1, 2, 3}, {0, nan, 9, 1, 2, 4})) == Pixels{255, 0, 0, 63, 127, 255});
}

TEST_CASE("The first images of a batch are one event") {
  const compute::Tensor images(compute::DType::kFloat32, {3, 4, 5, 3});
  const auto events = Written([&](EventWriter& writer) { return writer.AddImages(100, "images", images, 2); });
  REQUIRE(events.size() == 1);
  CHECK(events[0].step() == 100);
  REQUIRE(events[0].summary().value_size() == 2);
  const tensorflow::Summary::Value& value = events[0].summary().value(1);
  CHECK(value.tag() == "images/image/1");
  // Height (1), width (2) and colorspace (3), each by hand.
  CHECK(absl::BytesToHexString(value.image().SerializeAsString()).substr(0, 12) == "080410051803");
}

TEST_CASE("Events become visible by tens, and when they have become old") {
  const auto visible_of_25 = [](EventFlushing flushing) {
    const auto writer = EventWriter::Open(NewDirectory(), flushing).value();
    for (int i = 0; i < 25; ++i) REQUIRE(writer->AddScalars(i, {{"loss", 1.0f}}).ok());
    return ReadEvents(writer->path()).size() - 1;  // but for the first record
  };
  CHECK(visible_of_25({}) == 20);
  CHECK(visible_of_25({.max_pending = 100}) == 0);
  CHECK(visible_of_25({.max_pending = 100, .max_age = std::chrono::seconds(0)}) == 25);
}

TEST_CASE("Text is a string tensor of the text plugin") {
  const auto events = Written([](EventWriter& writer) { return writer.AddText(0, "flags", "--batch_size=1"); });
  REQUIRE(events.size() == 1);
  const tensorflow::Summary::Value& value = events[0].summary().value(0);
  CHECK(value.tag() == "flags/text_summary");
  CHECK(value.metadata().plugin_data().plugin_name() == "text");
  CHECK(value.tensor().dtype() == tensorflow::DT_STRING);
  CHECK(value.tensor().string_val(0) == "--batch_size=1");
}

TEST_CASE("A table of texts is a string tensor of rows and columns") {
  const auto events = Written([](EventWriter& writer) {
    return writer.AddTextTable(7, "samples", {{"class", "prediction"}, {"1", "2"}, {"3", "4"}});
  });
  REQUIRE(events.size() == 1);
  CHECK(events[0].step() == 7);
  const tensorflow::Summary::Value& value = events[0].summary().value(0);
  CHECK(value.tag() == "samples/text_summary");
  CHECK(value.metadata().plugin_data().plugin_name() == "text");
  const tensorflow::TensorProto& tensor = value.tensor();
  CHECK(tensor.dtype() == tensorflow::DT_STRING);
  REQUIRE(tensor.tensor_shape().dim_size() == 2);
  CHECK(tensor.tensor_shape().dim(0).size() == 3);
  CHECK(tensor.tensor_shape().dim(1).size() == 2);
  CHECK(std::vector<std::string>(tensor.string_val().begin(), tensor.string_val().end()) ==
        std::vector<std::string>{"class", "prediction", "1", "2", "3", "4"});
}

TEST_CASE("Session logs, run metadata and graphs are written") {
  const auto events = Written([](EventWriter& writer) {
    for (const absl::Status& status : {writer.AddSessionLog(7, SessionStatus::kStart),
                                       writer.AddSessionLog(8, SessionStatus::kCheckpoint, "m/model.ckpt"),
                                       writer.AddRunMetadata(9, "step_9", "metadata"), writer.AddGraphDef("graph")}) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
  REQUIRE(events.size() == 4);
  // status (1) START = 1, CHECKPOINT = 3; checkpoint_path (2).
  CHECK(events[0].step() == 7);
  CHECK(absl::BytesToHexString(events[0].session_log().SerializeAsString()) == "0801");
  CHECK(events[1].step() == 8);
  CHECK(absl::BytesToHexString(events[1].session_log().SerializeAsString()) ==
        "0803"
        "120c6d2f6d6f64656c2e636b7074");
  CHECK(events[2].step() == 9);
  CHECK(events[2].tagged_run_metadata().tag() == "step_9");
  CHECK(events[2].tagged_run_metadata().run_metadata() == "metadata");
  CHECK(events[3].graph_def() == "graph");
}

TEST_CASE("Texts and paths are UTF-8, which TensorBoard requires") {
  const auto events = Written([](EventWriter& writer) {
    for (const absl::Status& status :
         {writer.AddSessionLog(8, SessionStatus::kCheckpoint, "rd\xe9/model.ckpt"),
          writer.AddText(8, "flags", "rd\xe9"), writer.AddTextTable(8, "samples", {{"rd\xe9"}, {"é"}})}) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
  REQUIRE(events.size() == 3);
  CHECK(events[0].session_log().checkpoint_path() == "rd\uFFFD/model.ckpt");
  CHECK(events[1].summary().value(0).tensor().string_val(0) == "rd\uFFFD");
  CHECK(events[2].summary().value(0).tensor().string_val(0) == "rd\uFFFD");
  CHECK(events[2].summary().value(0).tensor().string_val(1) == "é");
}

TEST_CASE("A directory that cannot be made is reported") {
  CHECK(absl::IsFailedPrecondition(EventWriter::Open("/proc/none/eval").status()));
}

}  // namespace
}  // namespace official::train
