#include "official/report/run.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "official/report/event_files.h"
#include "official/report/page.h"
#include "official/report/sample_cards.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/protos/event.pb.h"

namespace official::report {
namespace {

using Catch::Matchers::Contains;

constexpr CurveKey kTrainingLoss = {"loss", Split::kTraining};

std::string NewDirectory(const std::string& name) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path + "/eval");
  return path;
}

void Write(const std::string& path, const std::string& text) { REQUIRE(files::WriteFileAtomically(path, text).ok()); }

std::string Metric(const std::string& name, const std::string& value, int step, const std::string& extras = "") {
  return absl::StrCat("{\"name\": \"", name, "\", \"value\": ", value, ", \"unit\": null, \"global_step\": ", step,
                      ", \"timestamp\": \"2026-01-01T00:00:00.000000Z\", \"extras\": [", extras, "]}\n");
}

tensorflow::Event Scalar(int64_t step, const std::string& tag, float value) {
  tensorflow::Event event;
  event.set_wall_time(1000 + static_cast<double>(step));
  event.set_step(step);
  event.mutable_summary()->add_value()->set_tag(tag);
  event.mutable_summary()->mutable_value(0)->set_simple_value(value);
  return event;
}

void WriteEvents(const std::string& path, const std::vector<tensorflow::Event>& events) {
  const auto writer = data::TFRecordWriter::Open(path).value();
  for (const tensorflow::Event& event : events) REQUIRE(writer->Write(event.SerializeAsString()).ok());
  REQUIRE(writer->Close().ok());
}

double Last(const Run& run, const CurveKey& key) { return Total(run.curves.at(key).buckets()).last; }

TEST_CASE("Curves of metric.log: the loss after the metrics of an evaluation is the evaluation's") {
  const std::string directory = NewDirectory("metric_log");
  Write(directory + "/metric.log", Metric("loss", "2.5", 10) + Metric("loss", "2.0", 20) +
                                       Metric("accuracy", "0.5", 20) + Metric("loss", "1.75", 20) +
                                       Metric("train_accuracy", "0.75", 30) + Metric("loss", "NaN", 30) +
                                       Metric("examples_per_sec", "900.5", 30));
  const Run run = ReadRun(directory).value();
  CHECK(Last(run, kTrainingLoss) == 2.0);
  CHECK(Total(run.curves.at(kTrainingLoss).buckets()).not_finite == 1);
  CHECK(Last(run, {"loss", Split::kEvaluation}) == 1.75);
  CHECK(Last(run, {"accuracy", Split::kEvaluation}) == 0.5);
  CHECK(Last(run, {"accuracy", Split::kTraining}) == 0.75);
  CHECK(Last(run, {"examples_per_sec", Split::kTraining}) == 900.5);
  CHECK(run.last_step() == 30);
  CHECK(run.notes.empty());
}

TEST_CASE("Curves of metric.log: the loss before metrics of later names is the evaluation's") {
  const std::string directory = NewDirectory("metric_log_before");
  Write(directory + "/metric.log",
        Metric("cross_entropy_loss", "9.5", 2) + Metric("loss", "9", 2) + Metric("loss", "8", 4) +
            Metric("loss", "7", 4) + Metric("metrics/accuracy", "0.5", 4) + Metric("metrics/rouge", "0.25", 4) +
            Metric("loss", "6", 6) + Metric("metrics/accuracy", "0.75", 8) + Metric("loss", "5", 10));
  const Run run = ReadRun(directory).value();
  const Bucket training = Total(run.curves.at(kTrainingLoss).buckets());
  CHECK(training.count == 4);  // of steps 2, 4, 6 and 10
  CHECK(training.last == 5);
  const Bucket evaluation = Total(run.curves.at({"loss", Split::kEvaluation}).buckets());
  CHECK(evaluation.count == 1);
  CHECK(evaluation.last == 7);
}

TEST_CASE("Curves of metric.log: a loss that is marked is the training's, then any other is an evaluation's") {
  const std::string directory = NewDirectory("metric_log_marked"), mark = R"({"name": "mode", "value": "train"})";
  Write(directory + "/metric.log", Metric("loss", "9", 1) + Metric("loss", "8", 2, mark) +
                                       Metric("loss", "7", 3, R"({"name": "a", "value": null})") +
                                       Metric("loss", "6", 4, R"({"name": "a", "value": "b"}, )" + mark) +
                                       Metric("loss", "5", 4));
  const Run run = ReadRun(directory).value();
  const Bucket training = Total(run.curves.at(kTrainingLoss).buckets());
  CHECK(training.count == 3);  // of steps 1, 2 and 4
  CHECK(training.last == 6);
  const Bucket evaluation = Total(run.curves.at({"loss", Split::kEvaluation}).buckets());
  CHECK(evaluation.count == 2);  // of steps 3 and 4
  CHECK(evaluation.last == 5);
}

TEST_CASE("Lines of metric.log that are no metrics are told, except one that is being written") {
  const std::string directory = NewDirectory("bad_lines");
  Write(directory + "/metric.log",
        Metric("loss", "1", 1) + "garbage\n[1]\n{\"name\": 3}\n" + Metric("loss", "2", 2) + "{\"name\": \"lo");
  const Run run = ReadRun(directory).value();
  CHECK(Last(run, kTrainingLoss) == 2);
  REQUIRE(run.notes.size() == 1);
  CHECK_THAT(run.notes[0], Contains("metric.log: 3 of 6 lines are not metrics, the first is line 2"));
  Write(directory + "/metric.log", absl::StrCat(std::string(3 << 20, 'x'), "\n"));
  CHECK(ReadRun(directory).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("Curves of event files") {
  const std::string directory = NewDirectory("events");
  tensorflow::Event resumed;
  resumed.set_step(21);
  resumed.mutable_session_log()->set_status(tensorflow::SessionLog::START);
  WriteEvents(directory + "/events.out.tfevents.1.host",
              {Scalar(10, "loss", 4), Scalar(20, "loss", 3), Scalar(21, "loss", 9), Scalar(30, "loss", 9),
               Scalar(30, "train_accuracy_1", 1)});
  WriteEvents(directory + "/events.out.tfevents.2.host",
              {resumed, Scalar(25, "loss", 2), Scalar(25, "global_step/sec", 7)});
  WriteEvents(directory + "/eval/events.out.tfevents.3.host", {Scalar(25, "loss", 2.5)});
  Write(directory + "/metric.log", Metric("loss", "100", 10));
  const Run run = ReadRun(directory).value();
  const Bucket loss = Total(run.curves.at(kTrainingLoss).buckets());
  CHECK(loss.count == 3);  // of steps 10, 20 and 25
  CHECK(loss.max == 4);
  CHECK(loss.last == 2);
  CHECK(run.curves.count({"accuracy", Split::kTraining}) == 0);  // of step 30, before the run was resumed after 20
  CHECK(Last(run, {"steps_per_sec", Split::kTraining}) == 7);
  CHECK(Last(run, {"loss", Split::kEvaluation}) == 2.5);
  CHECK(run.first_time == 1010);
  CHECK(run.last_time == 1030);
  tensorflow::Event no_time;
  for (const double time : {1e300, HUGE_VAL, std::nan(""), -1.0}) {
    no_time.set_wall_time(time);
    WriteEvents(directory + "/events.out.tfevents.4.host", {no_time});
    CHECK(ReadRun(directory).value().last_time == 1030);
  }
}

TEST_CASE("Reading event files shows how much of them is read") {
  const std::string directory = NewDirectory("progress");
  std::vector<tensorflow::Event> events;
  for (int i = 0; i < 1000; ++i) events.push_back(Scalar(i, "loss", 1));
  WriteEvents(directory + "/events.out.tfevents.1", events);
  WriteEvents(directory + "/eval/events.out.tfevents.1", {Scalar(3, "loss", 1)});
  logs::CapturedTasks log;
  REQUIRE(ReadRun(directory).ok());
  // A line begins at 0% and ends at 100%, of each of the two directories.
  const std::vector<std::string> lines = absl::StrSplit(log.Text(), "reading /");
  REQUIRE(lines.size() == 5);
  CHECK_THAT(lines[1], Contains("   0%"));
  CHECK_THAT(lines[2], Contains(" 100%"));
  CHECK_THAT(lines[3], Contains("   0%"));
  CHECK_THAT(lines[4], Contains(" 100%"));
}

TEST_CASE("An event file that is cut off or damaged is used up to there") {
  const std::string directory = NewDirectory("truncated"), path = directory + "/events.out.tfevents.1.host";
  WriteEvents(path, {Scalar(1, "loss", 4), Scalar(2, "loss", 3)});
  const std::string whole = files::ReadFile(path, 1000).value();
  for (const size_t cut : {size_t{1}, size_t{15}, whole.size() / 2 - 2}) {
    Write(path, whole.substr(0, whole.size() - cut));
    const Run run = ReadRun(directory).value();
    CHECK(Last(run, kTrainingLoss) == 4);
    CHECK(run.notes.empty());
  }
  std::string damaged = whole;
  damaged[whole.size() - 6] ^= 1;
  Write(path, damaged);
  const Run run = ReadRun(directory).value();
  CHECK(Last(run, kTrainingLoss) == 4);
  REQUIRE(run.notes.size() == 1);
  CHECK_THAT(run.notes[0], Contains(path) && Contains("checksum"));
}

tensorflow::Event SamplesEvent(int64_t step, const std::vector<int64_t>& dims, const std::vector<std::string>& texts) {
  tensorflow::Event event;
  event.set_step(step);
  tensorflow::Summary::Value* const value = event.mutable_summary()->add_value();
  value->set_tag("samples/text_summary");
  value->mutable_tensor()->set_dtype(tensorflow::DT_STRING);
  for (const int64_t dim : dims) value->mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(dim);
  for (const std::string& text : texts) value->mutable_tensor()->add_string_val(text);
  return event;
}

tensorflow::Event ImageEvent(const std::string& tag, const std::string& png) {
  tensorflow::Event event;
  event.mutable_summary()->add_value()->set_tag(tag);
  event.mutable_summary()->mutable_value(0)->mutable_image()->set_encoded_image_string(png);
  return event;
}

TEST_CASE("Samples are those of the last evaluation, with the images of any") {
  const std::string directory = NewDirectory("samples"), png = "\x89PNG\r\n\x1a\n";
  WriteEvents(directory + "/events.out.tfevents.1.host", {SamplesEvent(1, {2, 1}, {"of", "training"})});
  WriteEvents(directory + "/eval/events.out.tfevents.1.host",
              {ImageEvent("samples/image/0", png + "first"), ImageEvent("samples/image/1", png + "second"),
               ImageEvent("samples/image/1", "no PNG"), ImageEvent("samples/image/100", png),
               ImageEvent("samples/image/-1", png), ImageEvent("samples/image/x", png), ImageEvent("other", png),
               SamplesEvent(10, {2, 2}, {"class", "prediction", "a", "b"}),
               SamplesEvent(20, {3, 2}, {"class", "prediction", "a", "a", "b", "c"})});
  const Samples samples = ReadRun(directory).value().samples;
  CHECK(samples.step == 20);
  CHECK(samples.columns == std::vector<std::string>{"class", "prediction"});
  CHECK(samples.rows == std::vector<std::vector<std::string>>{{"a", "a"}, {"b", "c"}});
  CHECK(samples.pngs == std::map<size_t, std::string>{{0, png + "first"}, {1, png + "second"}});
}

TEST_CASE("Samples that are no table are left out with a note") {
  const std::string directory = NewDirectory("bad_samples"), path = directory + "/eval/events.out.tfevents.1.host";
  Write(directory + "/metric.log", Metric("loss", "1", 1));
  const std::vector<std::string> four(4, "x"), many(17, "x"), tall(102, "x");
  const auto [dims, texts] = GENERATE_COPY(
      std::pair(std::vector<int64_t>{4}, four), std::pair(std::vector<int64_t>{2, 3}, four),
      std::pair(std::vector<int64_t>{4, 0}, four), std::pair(std::vector<int64_t>{1, 4}, four),
      std::pair(std::vector<int64_t>{-2, -2}, four), std::pair(std::vector<int64_t>{int64_t{1} << 62, 4}, four),
      std::pair(std::vector<int64_t>{102, 1}, tall), std::pair(std::vector<int64_t>{1, 17}, many),
      std::pair(std::vector<int64_t>{2, 1}, std::vector<std::string>(2, std::string(600000, 'x'))));
  WriteEvents(
      path, {SamplesEvent(10, {2, 1}, {"text", "good"}), SamplesEvent(20, dims, texts), SamplesEvent(30, dims, texts)});
  const Run run = ReadRun(directory).value();
  CHECK(run.samples.step == 10);
  CHECK(run.samples.rows == std::vector<std::vector<std::string>>{{"good"}});
  CHECK(run.notes == std::vector<std::string>{path + ": the samples of step 20 are not a table of texts"});
}

TEST_CASE("Cards of samples: image, texts, and which predictions are wrong") {
  const std::string cards = SampleCards({.step = 1,
                                         .columns = {"class", "prediction", "probability"},
                                         .rows = {{"<i>", "<i>", "0.9"}, {"cat", "dog", "0.5"}},
                                         .pngs = {{0, "png"}, {7, "no such example"}}});
  CHECK_THAT(cards, Contains("<p>1 of 2 predictions are wrong.</p>") && Contains("<ul class=\"samples\">"));
  CHECK_THAT(cards, Contains("<li><img alt=\"example 1: class &lt;i&gt;\" src=\"data:image/png;base64,cG5n\"><dl>"));
  CHECK_THAT(cards, Contains("<li class=\"wrong\"><dl><dt>class</dt><dd dir=\"auto\">cat</dd><dt>prediction</dt>"
                             "<dd dir=\"auto\">dog <strong>&#10007; wrong</strong></dd><dt>probability</dt>"));
  CHECK(cards.find("<i>") == std::string::npos);
  const std::string texts = SampleCards({.columns = {"source", "translation"}, .rows = {{"a", "b"}}});
  CHECK_THAT(texts, Contains("<ul class=\"samples of-text\">") && !Contains("wrong"));
  CHECK(SampleCards({}).empty());
}

TEST_CASE("Names of curves") {
  CHECK(CurveName("train_accuracy_1", Split::kTraining) == "accuracy");
  CHECK(CurveName("accuracy_top_5", Split::kTraining) == "accuracy_top_5");
  CHECK(CurveName("learning_rate_1", Split::kTraining) == "learning_rate");
  CHECK(CurveName("train_x", Split::kEvaluation) == "train_x");
}

TEST_CASE("The number of curves of a run is bounded") {
  Curves curves;
  for (int i = 0; i < 1000; ++i) AddValue({absl::StrCat(i), Split::kTraining}, 1, 1, curves);
  CHECK(curves.size() == kMaxCurves);
}

TEST_CASE("Directories without a run") {
  const std::string empty = NewDirectory("empty");
  CHECK_THAT(std::string(ReadRun(empty).status().message()), Contains("has no event files and no metric.log"));
  const absl::Status missing = ReadRun(empty + "/none").status();
  CHECK(absl::IsNotFound(missing));
  CHECK_THAT(std::string(missing.message()), Contains("there is no directory " + empty + "/none"));
  Write(empty + "/file", "");
  const absl::Status file = ReadRun(empty + "/file").status();
  CHECK(absl::IsNotFound(file));
  CHECK_THAT(std::string(file.message()), Contains("not a directory") && Contains("such as " + empty));
}

TEST_CASE("Facts of benchmark_run.log and flags") {
  const std::string directory = NewDirectory("facts");
  Write(directory + "/metric.log", Metric("loss", "1", 1));
  Write(directory + "/flags.txt", "--name=a=\"b\"\n--flag\nword\n--empty=\n");
  Write(
      directory + "/benchmark_run.log",
      R"({"model_name": "mnist", "dataset": {"name": "MNIST"}, "machine_config": {"cpu_info": {"num_cores": 2,)"
      R"( "cpu_info": "A"}, "gpu_info": {"count": 1, "model": "G"}, "memory_total": 8589934592}, "test_id": null, "run_date": "2026-11-25T23:07:27.953458Z",)"
      R"( "run_parameters": [{"name": "x", "float_value": NaN}, {"name": "y", "long_value": 3}]})");
  const Run run = ReadRun(directory).value();
  CHECK(run.flags == NamedTexts{{"name", "a=\"b\""}, {"flag", ""}, {"empty", ""}});
  CHECK(run.facts == NamedTexts{{"model", "mnist"},
                                {"data", "MNIST"},
                                {"started", "2026-11-25 23:07:27 UTC"},
                                {"processor", "A"},
                                {"cores", "2"},
                                {"GPUs", "1 x G"},
                                {"memory", "8.0 GiB"},
                                {"parameter y", "3"}});
  CHECK(run.Fact("data") == "MNIST");
  const std::string deep = std::string(400000, '[') + std::string(400000, ']');
  Write(directory + "/benchmark_run.log", absl::StrCat(R"({"test_id": true, "model_name": )", deep, "}"));
  CHECK(ReadRun(directory).value().facts == NamedTexts{{"test id", "true"}});
  // Bytes that are not UTF-8 are lone surrogates; others are characters beyond U+FFFF.
  Write(directory + "/benchmark_run.log", R"({"model_name": "rd\udce9 \ud83d\ude00 \udcff\ud83d \\udce9"})");
  CHECK(ReadRun(directory).value().facts == NamedTexts{{"model", "rd\uFFFD 😀 \uFFFD\uFFFD \\udce9"}});
  Write(directory + "/benchmark_run.log", "{");
  CHECK_THAT(ReadRun(directory).value().notes.at(0), Contains("benchmark_run.log is not a JSON object"));
}

TEST_CASE("The latest timeline tells where the time of a step goes") {
  CHECK(LatestTrace({"timeline-1.json", "timeline-1001.json", "timeline-x.json", "a"}) == "timeline-1001.json");
  CHECK(LatestTrace({"profile-9-12.json", "profile-10-12.json", "timeline-50.json"}) == "profile-10-12.json");
  CHECK(LatestTrace({"timeline-1.json.incomplete-12345678"}).empty());
  const std::string directory = NewDirectory("trace"), path = directory + "/profile-2-3.json";
  Write(directory + "/metric.log", Metric("loss", "1", 1));
  Write(path, R"({"traceEvents": [{"name": "process_name", "ph": "M", "args": {"name": "x"}},)"
              R"( {"name": "MatMul", "ph": "X", "dur": 250, "args": {"flops": 1e6, "bytes": 2e6}},)"
              R"( {"name": "DataWait", "ph": "X", "dur": 500, "args": {}},)"
              R"( {"name": "MatMul", "ph": "X", "dur": 250, "args": {"flops": 1e6, "bytes": 2e6}},)"
              R"( {"name": "<Relu>", "ph": "X", "dur": 1000}, {"name": 3, "ph": "X"}, 7]})");
  const Run run = ReadRun(directory).value();
  CHECK(run.notes.empty());
  REQUIRE(run.op_times.size() == 3);
  CHECK(run.op_times[0].op == "<Relu>");
  CHECK(run.op_times[0].us == 1000);
  const std::string page = Page({run});
  // 500 us for 2e6 operations and 4e6 bytes.
  CHECK_THAT(page, Contains("MatMul</th><td>25.0%</td><td>0.500</td><td>2</td><td>4.0</td><td>8.0</td>"));
  CHECK_THAT(page, Contains("waits for data 25.0%, &lt;Relu&gt; 50.0%, MatMul 25.0%"));
  Write(path, R"({"traceEvents": [{"name": "MatMul")");
  CHECK_THAT(ReadRun(directory).value().notes.at(0), Contains("profile-2-3.json is not a complete timeline"));
}

TEST_CASE("The page marks flags that differ, and no text of a run is markup") {
  Run first = {.path = "<b>"}, second = {.path = "second"};
  first.flags = {{"batch_size", "</td>\"'&"}, {"seed", "1"}};
  second.flags = {{"batch_size", "20"}, {"seed", "1"}, {"extra", "x"}};
  first.curves[{"<i>", Split::kTraining}].Add(1, 1);
  first.notes = {"<u>"};
  first.images = {{"<s>", "png"}};
  const std::string page = Page({first, second});
  for (const char* markup : {"<b>", "</td>\"", "<i>", "<u>", "<s>"}) CHECK(page.find(markup) == std::string::npos);
  CHECK_THAT(page, Contains("</span> --batch_size</th><td>&lt;/td&gt;&quot;&#39;&amp;</td><td>20</td>"));
  CHECK_THAT(page, Contains("</span> --extra</th><td></td><td>x</td>"));
  CHECK_THAT(page, Contains("<tr><th scope=\"row\">--seed</th><td>1</td></tr>"));
  CHECK_THAT(page, Contains("alt=\"&lt;s&gt;\" src=\"data:image/png;base64,cG5n\""));
}

}  // namespace
}  // namespace official::report
