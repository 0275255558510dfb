#include "utils/run/small_run.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/protos/event.pb.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::run {

using compute::Tensor;

std::string NewDirectory(const std::string& name) {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/", name, "-", getpid(), "-", ++counter);
}

Config SmallRun(int batch_size) {
  Config config;
  config.base.data_dir = NewDirectory("data");
  config.base.data_dir_given = true;
  config.train.model_dir = NewDirectory("model");
  config.base.batch_size = batch_size;
  config.base.num_gpus = 0;
  config.base.augment = false;
  config.base.log_format = "simple";
  config.base.output = "json";
  return config;
}

std::vector<std::string> EvaluationsIn(const std::string& results) {
  std::vector<std::string> evaluations = absl::StrSplit(results, '\n', absl::SkipEmpty());
  std::erase_if(evaluations,
                [](const std::string& line) { return nlohmann::json::parse(line).at("event") != "evaluation"; });
  return evaluations;
}

std::unique_ptr<train::BundleReader> Checkpoint(const Config& config) {
  return train::FindLatestCheckpoint(config.train.model_dir).value().reader;
}

void CheckSameBits(const Config& first, const Config& second) {
  const auto a = Checkpoint(first), b = Checkpoint(second);
  REQUIRE(a->ListTensors().size() == b->ListTensors().size());
  for (const train::StoredTensor& tensor : a->ListTensors()) {
    if (!tensor.dtype) continue;
    INFO(tensor.name);
    const Tensor x = a->Read(tensor.name).value(), y = b->Read(tensor.name).value();
    CHECK(x.type() == y.type());
    CHECK(std::memcmp(x.raw_data(), y.raw_data(), x.num_bytes()) == 0);
  }
}

std::vector<double> Losses(const Config& config) {
  std::vector<double> losses;
  const std::string log = files::ReadFile(config.train.model_dir + "/metric.log", 1 << 24).value();
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const nlohmann::json entry = nlohmann::json::parse(line.begin(), line.end());
    if (entry["name"] == "loss") losses.push_back(entry["value"]);
  }
  return losses;
}

std::vector<std::vector<std::string>> LastSamples(const Config& config) {
  std::vector<std::vector<std::string>> rows;
  const std::string directory = config.train.model_dir + "/eval";
  const std::vector<std::string> names = files::ListDirectory(directory).value();
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, "events.")) continue;
    const auto reader = data::TFRecordReader::Open(files::JoinPath(directory, name)).value();
    for (std::string record; reader->Next(&record).value();) {
      tensorflow::Event event;
      REQUIRE(event.ParseFromString(record));
      for (const tensorflow::Summary::Value& value : event.summary().value()) {
        if (value.tag() != "samples/text_summary") continue;
        const tensorflow::TensorProto& table = value.tensor();
        rows.assign(table.tensor_shape().dim(0).size(), {});
        for (int i = 0; i < table.string_val_size(); ++i) {
          rows[i / table.tensor_shape().dim(1).size()].push_back(table.string_val(i));
        }
      }
    }
  }
  return rows;
}

}  // namespace official::run
