#include "utils/misc/distribution_utils.h"

#include <catch2/catch.hpp>
#include <limits>

#include "absl/strings/str_cat.h"

namespace official::misc {
namespace {

using Catch::Matchers::Contains;

std::function<VisibleGpus()> Machine(int gpus) {
  return [gpus] { return VisibleGpus{gpus, gpus == 0 ? "no NVIDIA driver is loaded" : ""}; };
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("GetNumGpus takes what is asked for and there") {
  CHECK(GetNumGpus(std::nullopt, Machine(0)).value() == 0);
  CHECK(GetNumGpus(std::nullopt, Machine(8)).value() == 1);
  CHECK(GetNumGpus(-1, Machine(0)).value() == 0);
  CHECK(GetNumGpus(-1, Machine(8)).value() == 8);
  CHECK(GetNumGpus(8, Machine(8)).value() == 8);
  CHECK(GetNumGpus(2, Machine(8)).value() == 2);
}

TEST_CASE("A run on the CPU does not wake the GPU driver") {
  bool asked = false;
  const auto count = [&asked] {
    asked = true;
    return VisibleGpus{4, ""};
  };
  CHECK(GetNumGpus(0, count).value() == 0);
  CHECK_FALSE(asked);
}

TEST_CASE("More GPUs than there are is a flag error that says what is there") {
  const absl::Status none = GetNumGpus(4, Machine(0)).status();
  CHECK(absl::IsInvalidArgument(none));
  CHECK_THAT(Message(none),
             Contains("--num_gpus=4") && Contains("no NVIDIA driver is loaded") && Contains("--num_gpus=0"));
  const absl::Status few = GetNumGpus(4, Machine(1)).status();
  CHECK(absl::IsInvalidArgument(few));
  CHECK_THAT(Message(few), Contains("--num_gpus=4") && Contains("1 GPU;"));
  CHECK(absl::IsInvalidArgument(GetNumGpus(-2, Machine(1)).status()));
}

// The values are those of TensorFlow's distribution_utils_test and of a run of it with (128, 3).
TEST_CASE("PerDeviceBatchSize splits evenly or says what would work") {
  CHECK(PerDeviceBatchSize(147, 0).value() == 147);
  CHECK(PerDeviceBatchSize(147, 1).value() == 147);
  CHECK(PerDeviceBatchSize(147, 7).value() == 21);
  const absl::Status status = PerDeviceBatchSize(147, 5).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(Message(PerDeviceBatchSize(128, 3).status()) ==
        "When running with multiple GPUs, batch size must be a multiple of the number of available GPUs. "
        "Found 3 GPUs with a batch size of 128; try --batch_size=126 or --batch_size=129 instead.");
  CHECK_THAT(Message(PerDeviceBatchSize(128, 3, "CPU devices").status()), Contains("Found 3 CPU devices with"));
}

TEST_CASE("PerDeviceBatchSize proposes no batch that is too small and does not overflow") {
  CHECK_THAT(Message(PerDeviceBatchSize(3, 8).status()), Contains("try --batch_size=8 instead"));
  CHECK_THAT(Message(PerDeviceBatchSize(257, 4, "GPUs", /*least=*/257).status()),
             Contains("try --batch_size=260 instead"));
  CHECK_THAT(Message(PerDeviceBatchSize(17, 4, "GPUs", /*least=*/257).status()),
             Contains("try --batch_size=260 instead"));
  CHECK_THAT(Message(PerDeviceBatchSize(261, 4, "GPUs", /*least=*/257).status()),
             Contains("try --batch_size=260 or --batch_size=264 instead"));
  CHECK_THAT(Message(PerDeviceBatchSize(std::numeric_limits<int>::max(), 4).status()),
             Contains("--batch_size=2147483644 or --batch_size=2147483648"));
}

TEST_CASE("Devices are named one by one") {
  CHECK(ParseDevices("gpu:0").value().are_gpus);
  CHECK(ParseDevices("gpu:0, gpu:2").value().indices == std::vector<int>{0, 2});
  CHECK(ParseDevices("/gpu:3,/device:GPU:1").value().indices == std::vector<int>{3, 1});
  CHECK_FALSE(ParseDevices("/cpu:0,cpu:1").value().are_gpus);
  for (const auto& [devices, why] :
       std::vector<std::pair<const char*, const char*>>{{"", "\"\" is no device; write a list such as gpu:0,gpu:2"},
                                                        {"gpu", "\"gpu\" is no device"},
                                                        {"gpu:", "\"gpu:\" is no device"},
                                                        {"gpu:-1", "is no device"},
                                                        {"gpu:x", "is no device"},
                                                        {"gpu:1024", "is no device"},
                                                        {"gpu:0,", "\"\" is no device"},
                                                        {"tpu:0", "is no device"},
                                                        {"gpu:0,cpu:0", "\"cpu:0\" is of another kind"},
                                                        {"gpu:1,gpu:1", "\"gpu:1\" is there twice"}}) {
    CAPTURE(devices);
    const absl::Status status = ParseDevices(devices).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(Message(status), Contains(absl::StrCat("--devices=", devices, ": ")) && Contains(why));
  }
}

TEST_CASE("Several GPUs are asked for by number or by name") {
  int counts = 0;
  const auto several = [&](std::optional<int> num_gpus, const std::optional<std::string>& devices) {
    return AskForSeveralGpus(num_gpus, devices, [&] {
      ++counts;
      return VisibleGpus{.count = 2};
    });
  };
  CHECK_FALSE(several(std::nullopt, std::nullopt));
  CHECK_FALSE(several(0, std::nullopt));
  CHECK_FALSE(several(1, std::nullopt));
  CHECK(several(2, std::nullopt));
  CHECK(several(std::nullopt, "gpu:0,gpu:2"));
  CHECK_FALSE(several(std::nullopt, "gpu:2"));
  CHECK_FALSE(several(std::nullopt, "cpu:0,cpu:1"));
  CHECK_FALSE(several(std::nullopt, "gpu:0,gpu:0"));
  CHECK(counts == 0);
  CHECK(several(-1, std::nullopt));
  CHECK(counts == 1);
}

TEST_CASE("A strategy has TensorFlow's name, or is refused where there are too many devices or workers for it") {
  for (const char* one : {"off", "default", "one_device"}) {
    CHECK(StrategyName(one, 1, 0).value() == "one_device");
    CHECK(StrategyName(one, 1, 1).value() == "one_device");
  }
  CHECK(StrategyName("default", 1, 2).value() == "mirrored");
  CHECK(StrategyName("default", 2, 2).value() == "multi_worker_mirrored");
  for (const int devices : {1, 4}) {
    CHECK(StrategyName("mirrored", 1, devices).value() == "mirrored");
    CHECK(StrategyName("central_storage", 1, devices).value() == "central_storage");
    CHECK(StrategyName("parameter_server", 1, devices).value() == "central_storage");
    for (const int workers : {1, 2}) {
      CHECK(StrategyName("multi_worker_mirrored", workers, devices).value() == "multi_worker_mirrored");
      CHECK(StrategyName("collective_all_reduce", workers, devices).value() == "multi_worker_mirrored");
    }
  }
  for (const char* one : {"off", "one_device"}) {
    const absl::Status status = StrategyName(one, 1, 2, "CPU devices").status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(Message(status), Contains(absl::StrCat("--distribution_strategy=", one, " is for one device")) &&
                                    Contains("this run has 2 CPU devices;"));
  }
  for (const char* one : {"off", "one_device", "mirrored", "central_storage"}) {
    const absl::Status status = StrategyName(one, 3, 3, "replicas").status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(Message(status), Contains(absl::StrCat("--distribution_strategy=", one, " is for one process")) &&
                                    Contains("this run has 3 workers; use"));
  }
}

}  // namespace
}  // namespace official::misc
