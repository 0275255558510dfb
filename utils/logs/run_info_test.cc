#include "utils/logs/run_info.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace official::logs {
namespace {

using Catch::Matchers::Contains;

std::string WriteTestFile(const std::string& name, const std::string& text) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::ofstream(path) << text;
  return path;
}

SystemFiles NoFiles() { return {"/no/cpuinfo", "/no/meminfo", "/no/product_name"}; }

std::string Record(const RunInfo& info, const SystemFiles& files) {
  return DumpJson(CollectRunInfo(info, absl::FromUnixMicros(1533040496000789), files));
}

TEST_CASE("A run record has the official fields in the official order") {
  for (char** variable = environ; *variable != nullptr;) {  // what the caller of the test may have set
    const std::string name = std::string(*variable).substr(0, std::string(*variable).find('='));
    if (name.rfind("TF_", 0) == 0) {
      unsetenv(name.c_str());
    } else {
      ++variable;
    }
  }
  setenv("TF_OTHER", "2=\u00e9", 1);
  setenv("TF_ENABLE_WINOGRAD_NONFUSED", "1", 1);
  setenv("OTHER", "3", 1);
  const SystemFiles files = {
      .cpuinfo = WriteTestFile("cpuinfo",
                               "processor\t: 0\n"
                               "model name\t: Intel(R) Xeon(R) Processor @ 2.50GHz\n"
                               "cpu MHz\t\t: 3117.5\n\n"
                               "processor\t: 1\n"
                               "model name\t: another\n"),
      .meminfo = WriteTestFile("meminfo", "MemTotal:        8000000 kB\nMemFree:  1 kB\nMemAvailable:    7000000 kB\n"),
      .product_name = WriteTestFile("product_name", "Google Compute Engine\n")};
  const RunInfo info = {.model_name = "resnet",
                        .dataset_name = "CIFAR-10-synthetic",
                        .test_id = "nightly",
                        .run_parameters = {{"batch_size", int64_t{32}},
                                           {"synthetic_data", true},
                                           {"train_epochs", 100.0},
                                           {"dtype", "fp16"},
                                           {"resnet_size", int64_t{50}},
                                           {"random_tensor", "<tf.Tensor 'Const:0' shape=() dtype=float32>"},
                                           {"tpu", std::nullopt}},
                        .gpu_count = 2,
                        .gpu_model = "NVIDIA H200",
                        .version = "0.1.0",
                        .version_git_hash = "8d5061e"};
  CHECK(
      Record(info, files) ==
      absl::StrCat(
          R"({"model_name": "resnet", "dataset": {"name": "CIFAR-10-synthetic"}, "machine_config": {"cpu_info": )",
          R"({"num_cores": )", sysconf(_SC_NPROCESSORS_ONLN),
          R"(, "cpu_info": "Intel(R) Xeon(R) Processor @ 2.50GHz", "mhz_per_cpu": 2500.0}, )",
          R"("gpu_info": {"count": 2, "model": "NVIDIA H200"}, )",
          R"("memory_total": 8192000000, "memory_available": 7168000000}, )",
          R"("test_id": "nightly", "run_date": "2018-07-31T12:34:56.000789Z", )",
          R"("tensorflow_version": {"version": "0.1.0", "git_hash": "8d5061e"}, )",
          R"("tensorflow_environment_variables": [{"name": "TF_ENABLE_WINOGRAD_NONFUSED", "value": "1"}, )",
          R"({"name": "TF_OTHER", "value": "2=\u00e9"}], )",
          R"("run_parameters": [{"name": "batch_size", "long_value": 32}, {"name": "dtype", "string_value": "fp16"}, )",
          R"({"name": "random_tensor", "string_value": "<tf.Tensor 'Const:0' shape=() dtype=float32>"}, )",
          R"({"name": "resnet_size", "long_value": 50}, {"name": "synthetic_data", "bool_value": "True"}, )",
          R"({"name": "tpu", "string_value": "None"}, {"name": "train_epochs", "float_value": 100.0}], )",
          R"("test_environment": "GCP"})"));
}

TEST_CASE("A run record leaves out what is not known") {
  const std::string record = Record({.model_name = "resnet"}, NoFiles());
  CHECK_THAT(record, Contains(R"("machine_config": {"gpu_info": {"count": 0}}, "test_id": null)"));
  CHECK_THAT(record, !Contains("run_parameters"));
  CHECK_THAT(record, !Contains("test_environment"));
}

TEST_CASE("The clock rate is the advertised one, else the present one, else left out") {
  const auto cpu_info = [](const std::string& text) {
    SystemFiles files = NoFiles();
    files.cpuinfo = WriteTestFile("cpuinfo_rate", text);
    return Record({}, files);
  };
  CHECK_THAT(cpu_info("model name : Pentium @ 866MHz\n"), Contains(R"("mhz_per_cpu": 866.0})"));
  CHECK_THAT(cpu_info("model name : AMD EPYC 9R14\ncpu MHz : 3700.123\n"),
             Contains(R"("cpu_info": "AMD EPYC 9R14", "mhz_per_cpu": 3700.123})"));
  CHECK_THAT(cpu_info("model name : odd @ fast\n"), Contains(R"("cpu_info": "odd @ fast"})"));
}

TEST_CASE("Only Google's machines are GCP") {
  SystemFiles files = NoFiles();
  files.product_name = WriteTestFile("product_name_other", "HVM domU\n");
  CHECK_THAT(Record({}, files), !Contains("test_environment"));
}

}  // namespace
}  // namespace official::logs
