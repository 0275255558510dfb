#include "utils/run/run_record.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <variant>

namespace official::run {
namespace {

std::string Text(const logs::RunInfo& info, const std::string& name) {
  const auto& parameters = info.run_parameters;
  const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const auto& p) { return p.first == name; });
  REQUIRE(found != parameters.end());
  if (const auto* number = std::get_if<int64_t>(&found->second)) return std::to_string(*number);
  return std::get<std::string>(found->second);
}

TEST_CASE("The record has the machine's GPUs, the commit and the parameters") {
  Config config;
  config.base.batch_size = 128;
  config.base.train_epochs = 3;
  config.commit = "0123abc";
  SessionOptions options;
  options.name = "resnet";
  options.run_parameters = {{"resnet_size", "50"}};
  const logs::RunInfo info = RunRecord(config, options, "CIFAR-10-synthetic", 32, {2, "", "NVIDIA H200"});
  CHECK(info.model_name == "resnet");
  CHECK(info.dataset_name == "CIFAR-10-synthetic");
  CHECK(info.gpu_count == 2);
  CHECK(info.gpu_model == "NVIDIA H200");
  CHECK(info.version_git_hash == "0123abc");
  CHECK(Text(info, "batch_size") == "128");
  CHECK(Text(info, "dtype") == "<dtype: 'float32'>");
  CHECK(Text(info, "resnet_size") == "50");
  config.train.dtype = compute::DType::kFloat16;
  CHECK(Text(RunRecord(config, options, "CIFAR-10-synthetic", 32, {}), "dtype") == "<dtype: 'float16'>");
}

TEST_CASE("A model can record upstream's name of its data set and the batch of each device") {
  Config config;
  config.base.batch_size = 128;
  SessionOptions options;
  options.name = "transformer";
  options.official_dataset = "wmt_translate_ende";
  options.records_replica_batch = true;
  const logs::RunInfo info = RunRecord(config, options, "translations", 32, {});
  CHECK(info.dataset_name == "wmt_translate_ende");
  CHECK(info.gpu_count == 0);
  CHECK(Text(info, "batch_size") == "32");
}

}  // namespace
}  // namespace official::run
