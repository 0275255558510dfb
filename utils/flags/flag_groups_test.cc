#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>

#include "utils/flags/base.h"
#include "utils/flags/benchmark.h"
#include "utils/flags/command_line.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/image.h"
#include "utils/flags/performance.h"
#include "utils/train/options.h"

namespace official::flags {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

const Program kProgram = {.name = "test_main", .description = "Tests.", .examples = {}, .defaults = {}, .flags = {}};

absl::StatusOr<CommandLine> Parse(const Words& words) { return CommandLine::Parse(kProgram, words); }

std::string Error(const Words& words) {
  const absl::Status status = Parse(words).status();
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("Defaults of the base group") {
  const BaseConfig base = BaseFromFlags(Parse({}).value());
  CHECK(base.data_dir == "/tmp");
  CHECK_FALSE(base.data_dir_given);
  CHECK_FALSE(base.clean);
  CHECK(base.train_epochs == 1);
  CHECK(base.epochs_between_evals == 1);
  CHECK_FALSE(base.stop_threshold.has_value());
  CHECK_FALSE(base.keep_best.has_value());
  CHECK_FALSE(base.early_stop.has_value());
  CHECK(base.batch_size == 32);
  CHECK_FALSE(base.num_gpus.has_value());
  CHECK(base.hooks == Words{"LoggingTensorHook"});
  CHECK_FALSE(base.export_dir.has_value());
  CHECK(base.export_format == ExportFormat::kSavedModel);
  CHECK(base.shuffle);
  CHECK(base.augment);
  CHECK(base.log_format == "auto");
  CHECK(base.output == "text");
}

TEST_CASE("Defaults of the flags of the training itself, from the base and the performance group") {
  REQUIRE(Parse({}).ok());
  const auto train = FromFlags<train::TrainOptions>();
  CHECK(train.model_dir == "/tmp");
  CHECK(train.resume == train::Resume::kAuto);
  CHECK(train.seed == 1);
  CHECK_FALSE(train.save_checkpoints_steps.has_value());
  CHECK(train.save_checkpoints_secs == 600);
  CHECK(train.keep_checkpoint_max == 5);
  CHECK(train.log_every_n_steps == 100);
  CHECK(train.dtype == compute::DType::kFloat32);
  CHECK(train.loss_scale.value == 1);
  CHECK_FALSE(train.loss_scale.dynamic);
  CHECK(train.grad_accum_steps == 1);
  CHECK_FALSE(train.ema_decay.has_value());
  CHECK_FALSE(train.clip_norm.has_value());
  CHECK_FALSE(train.clip_value.has_value());
  CHECK(train.eval_samples == 16);
  CHECK(train.check_replicas_steps == 100);
  CHECK(train.winograd);
}

TEST_CASE("Flags whose fields are of another type") {
  REQUIRE(Parse({"--resume=must", "--winograd=off", "--dtype=bf16", "--num_parallel_calls=3"}).ok());
  const auto train = FromFlags<train::TrainOptions>();
  CHECK(train.resume == train::Resume::kMust);
  CHECK_FALSE(train.winograd);
  CHECK(train.dtype == compute::DType::kBFloat16);
  CHECK(FromFlags<PerformanceConfig>().num_parallel_calls == 3);
  REQUIRE(Parse({"--intra_op_parallelism_threads=4", "--intra_op_parallelism_threads=auto"}).ok());
  CHECK(FromFlags<PerformanceConfig>().intra_op_parallelism_threads == 0);
  REQUIRE(Parse({"--cuda_graphs=must"}).ok());
  CHECK(FromFlags<PerformanceConfig>().cuda_graphs == compute::Recordings::kMust);
}

TEST_CASE("Defaults of the other groups") {
  REQUIRE(Parse({}).ok());
  const auto performance = FromFlags<PerformanceConfig>();
  CHECK(performance.num_parallel_calls == static_cast<int>(std::thread::hardware_concurrency()));
  CHECK(performance.intra_op_parallelism_threads == 0);
  CHECK_FALSE(performance.use_synthetic_data);
  CHECK_FALSE(performance.describe_plan);
  CHECK_FALSE(performance.max_train_steps.has_value());
  CHECK(performance.distribution_strategy == "default");
  CHECK_FALSE(performance.all_reduce_alg.has_value());
  CHECK(performance.all_reduce_timeout_secs == 600);
  CHECK(performance.compile_timeout_secs == 3600);
  CHECK_FALSE(performance.tf32);
  CHECK(performance.cuda_graphs == compute::Recordings::kAuto);
  CHECK_FALSE(FromFlags<ImageConfig>().data_format.has_value());
  const auto benchmark = FromFlags<BenchmarkConfig>();
  CHECK_FALSE(benchmark.benchmark_logger_type.has_value());
  CHECK_FALSE(benchmark.benchmark_test_id.has_value());
  CHECK_FALSE(benchmark.benchmark_log_dir.has_value());
}

TEST_CASE("--profile names steps") {
  CHECK(ParseProfile("100:120")->first == 100);
  CHECK(ParseProfile("100:120")->last == 120);
  CHECK(ParseProfile("7:7").ok());
  CHECK(ParseProfile("1:1000").ok());
  for (const char* text : {"5", ":", "5:", "1:2:3", "a:b", "1.5:2", "9999999999999999999:1"}) {
    CHECK_THAT(Error({std::string("--profile=") + text}), Contains("needs two step numbers, START:STOP"));
  }
  CHECK_THAT(Error({"--profile=0:5"}), Contains("flag --profile=0:5: ") && Contains("START of at least 1"));
  CHECK_THAT(Error({"--profile=-2:5"}), Contains("START of at least 1"));
  CHECK_THAT(Error({"--profile=9:5"}), Contains("did you mean 5:9?"));
  CHECK_THAT(Error({"--profile=2:1002"}), Contains("at most 1000 steps") && Contains("try 2:1001"));
  CHECK_THAT(Error({"--profile=5:20", "--max_train_steps=10"}), Contains("the run ends at --max_train_steps=10"));
  CHECK(Parse({"--profile=5:20", "--max_train_steps=20"}).ok());
}

// The table of short names in TensorFlow's flag groups.
TEST_CASE("Every short name sets its flag") {
  const std::vector<std::vector<std::string>> table = {
      {"dd", "data_dir", "/d"},
      {"md", "model_dir", "/m"},
      {"te", "train_epochs", "534"},
      {"ebe", "epochs_between_evals", "15"},
      {"st", "stop_threshold", "0.5"},
      {"bs", "batch_size", "256"},
      {"ng", "num_gpus", "4"},
      {"hk", "hooks", "LoggingMetricHook"},
      {"ed", "export_dir", "/e"},
      {"npc", "num_parallel_calls", "18"},
      {"inter", "inter_op_parallelism_threads", "5"},
      {"intra", "intra_op_parallelism_threads", "10"},
      {"synth", "use_synthetic_data", "true"},
      {"mts", "max_train_steps", "100"},
      {"dt", "dtype", "bf16"},
      {"ls", "loss_scale", "5"},
      {"ara", "all_reduce_alg", "hierarchical_copy"},
      {"df", "data_format", "channels_first"},
      {"bti", "benchmark_test_id", "a test"},
      {"bld", "benchmark_log_dir", "/b"},
      {"gp", "gcp_project", "p"},
      {"bds", "bigquery_data_set", "s"},
      {"brt", "bigquery_run_table", "r"},
      {"brst", "bigquery_run_status_table", "t"},
      {"bmt", "bigquery_metric_table", "m"},
  };
  for (const auto& row : table) {
    const auto command_line = Parse({"-" + row[0] + "=" + row[2]});
    REQUIRE(command_line.ok());
    CHECK_THAT(command_line->AllFlagsText(), Contains("--" + row[1] + "=" + row[2] + "\n"));
  }
  for (const char* flag :
       {"--tpu_zone=z", "--tpu_gcp_project=p", "--num_tpu_shards=4", "--benchmark_logger_type=BaseBenchmarkLogger"}) {
    CHECK(Parse({flag}).ok());
  }
}

TEST_CASE("A flag that a program does not use says so, in the help and when it is given") {
  const std::vector<std::string> unused = {
      "bigquery_data_set",  "bigquery_metric_table", "bigquery_run_status_table",
      "bigquery_run_table", "gcp_project",           "tpu_zone",
      "tpu_gcp_project",    "num_tpu_shards",        "inter_op_parallelism_threads",
      "data_format"};
  CHECK(NotesOnUnusedFlags(Parse({}).value()).empty());
  for (const std::string& name : unused) {
    const std::string value = name == "data_format" ? "channels_first" : "4";
    const absl::StatusOr<CommandLine> command_line = Parse({"--" + name + "=" + value});
    REQUIRE(command_line.ok());
    const std::vector<std::string> notes = NotesOnUnusedFlags(*command_line);
    REQUIRE(notes.size() == 1);
    CHECK_THAT(notes[0], Contains("--" + name + " has no effect here: "));
  }
  std::vector<std::string> found;
  const CommandLine defaults = Parse({}).value();
  for (const CommandLine::Group& group : defaults.groups()) {
    for (const CommandLine::Flag& flag : group.flags) {
      if (HelpOf(flag).starts_with("Not used: ")) found.emplace_back(flag.spec.name);
    }
  }
  CHECK_THAT(found, Catch::Matchers::UnorderedEquals(unused));
}

TEST_CASE("A program may not use a shared flag, or use it in its own way") {
  Program program = kProgram;
  program.not_used = {{"augment", "there are no images"}};
  program.help = {{"data_format", "Order of the rows."}};
  const absl::StatusOr<CommandLine> command_line =
      CommandLine::Parse(program, {"--noaugment", "--data_format=channels_last"});
  REQUIRE(command_line.ok());
  CHECK(NotesOnUnusedFlags(*command_line) == Words{"--augment has no effect here: there are no images"});
}

TEST_CASE("The loss scale follows the type unless it is given") {
  struct Case {
    Words words;
    compute::DType dtype;
    float loss_scale;
    bool dynamic = false;
  };
  for (const Case& c : std::vector<Case>{{{"--dtype=fp16"}, compute::DType::kFloat16, 128},
                                         {{"--dtype=fp32"}, compute::DType::kFloat32, 1},
                                         {{"--dtype=bf16"}, compute::DType::kBFloat16, 1},
                                         {{"--dtype=fp16", "--loss_scale", "5"}, compute::DType::kFloat16, 5},
                                         {{"--dtype=fp32", "--loss_scale", "5"}, compute::DType::kFloat32, 5},
                                         {{"--dtype=fp16", "-ls", "1.5"}, compute::DType::kFloat16, 1.5},
                                         {{"--loss_scale=dynamic"}, compute::DType::kFloat32, 32768, true}}) {
    REQUIRE(Parse(c.words).ok());
    const auto train = FromFlags<train::TrainOptions>();
    CHECK(train.dtype == c.dtype);
    CHECK(train.loss_scale.value == c.loss_scale);
    CHECK(train.loss_scale.dynamic == c.dynamic);
  }
}

TEST_CASE("A bare boolean is true") {
  REQUIRE(Parse({"--use_synthetic_data"}).ok());
  CHECK(FromFlags<PerformanceConfig>().use_synthetic_data);
}

TEST_CASE("The directory of TF_CONFIG counts as given where the command line names none") {
  const auto model_dir = [](const Words& words) {
    const CommandLine command_line = Parse(words).value();
    return FromFlags<train::TrainOptions>().model_dir + (BaseFromFlags(command_line).model_dir_given ? ", given" : "");
  };
  setenv("TF_CONFIG", R"({"model_dir": "/tmp/run1"})", 1);
  CHECK(model_dir({}) == "/tmp/run1, given");
  CHECK(model_dir({"--model_dir=/tmp/run2"}) == "/tmp/run2, given");
  setenv("TF_CONFIG", R"({"task": {}})", 1);
  CHECK(model_dir({}) == "/tmp");
  setenv("TF_CONFIG", R"({"model_dir": 3})", 1);  // which the run refuses
  CHECK(model_dir({}) == "/tmp");
  unsetenv("TF_CONFIG");
}

TEST_CASE("Ranges and choices of the groups") {
  for (const char* value : {"0", "-1", "nan", "inf", "1e39", "static", "128x"}) {
    CHECK_THAT(Error({"--loss_scale", value}),
               Contains(std::string("--loss_scale=") + value) && Contains("at least 1, or 'dynamic'"));
  }
  CHECK_THAT(Error({"--all_reduce_alg=ring"}),
             Contains("--all_reduce_alg=ring") && Contains("<nccl|hierarchical_copy|reduction_to_one_device>"));
  CHECK_THAT(Error({"--data_format=NHWC"}), Contains("<channels_first|channels_last>"));
  CHECK_THAT(Error({"--ps_partitioner=fixed_size:0"}),
             Contains("flag --ps_partitioner=fixed_size:0: needs fixed_size:SHARDS, min_size:BYTES[:MAX_SHARDS] or "));
  CHECK_THAT(Error({"--max_train_steps=0"}), Contains("at least 1"));
  CHECK_THAT(Error({"--num_parallel_calls=0"}), Contains("at least 1"));
  CHECK_THAT(Error({"--intra_op_parallelism_threads=-1"}), Contains("needs an integer, at least 0, or auto"));
  CHECK_THAT(Error({"--intra_op_parallelism_threads=all"}), Contains("needs an integer, at least 0, or auto"));
  CHECK_THAT(Error({"--epochs_between_evals=0"}), Contains("at least 1"));
  CHECK_THAT(Error({"--keep_checkpoint_max=-1"}), Contains("at least 0"));
  CHECK_THAT(Error({"--save_checkpoints_steps=0"}), Contains("at least 1"));
  CHECK_THAT(Error({"--log_every_n_steps=0"}), Contains("at least 1"));
  CHECK_THAT(Error({"--log_format=xml"}), Contains("<auto|bar|simple|json|none>"));
  CHECK_THAT(Error({"--output=xml"}), Contains("<text|json>"));
}

TEST_CASE("What chooses other devices is not for those of a PJRT plugin") {
  REQUIRE(Parse({"--distribution_strategy=tpu", "--pjrt_plugin=a.so", "--num_gpus=0"}).ok());
  CHECK(FromFlags<PerformanceConfig>().pjrt_plugin == "a.so");
  CHECK_THAT(Error({"--pjrt_plugin=a.so"}), Contains("--pjrt_plugin=a.so: is for --distribution_strategy=tpu"));
  for (const char* flag :
       {"--num_gpus=2", "--devices=cpu:0", "--all_reduce_alg=nccl", "--num_packs=3", "--tf32=true"}) {
    CHECK_THAT(Error({"--distribution_strategy=tpu", flag}),
               Contains(std::string(flag) + ": is not for --distribution_strategy=tpu; leave one of them out"));
  }
}

TEST_CASE("Directories of Google Cloud Storage are refused") {
  for (const char* flag : {"--model_dir=gs://bucket/run", "--data_dir=gs://bucket/data"}) {
    CHECK_THAT(Error({flag}), Contains(std::string(flag) + ": Google Cloud Storage is neither read nor written"));
  }
}

TEST_CASE("Devices are named or counted, and of one kind") {
  CHECK(Parse({"--devices=cpu:0,cpu:1"}).ok());
  CHECK_THAT(Error({"--devices=gpu:0", "--num_gpus=1"}),
             Contains("--devices=gpu:0: cannot be combined with --num_gpus; use one of them"));
  CHECK_THAT(Error({"--devices=cpu:0", "--num_cpu_devices=2"}),
             Contains("--devices=cpu:0: cannot be combined with --num_cpu_devices; use one of them"));
  CHECK_THAT(Error({"--num_cpu_devices=2", "--num_gpus=1"}),
             Contains("--num_cpu_devices=2: cannot be combined with --num_gpus=1; use one of them"));
}

TEST_CASE("The file logger needs its directory, BigQuery is refused") {
  CHECK_THAT(Error({"--benchmark_logger_type", "BenchmarkFileLogger"}),
             Contains("--benchmark_logger_type=BenchmarkFileLogger") && Contains("--benchmark_log_dir"));
  CHECK(Parse({"--benchmark_logger_type=BenchmarkFileLogger", "-bld", "/b"}).ok());
  CHECK(Parse({"-bld", "/b", "--benchmark_logger_type=BenchmarkFileLogger"}).ok());
  CHECK_THAT(Error({"--benchmark_logger_type=BenchmarkBigQueryLogger", "-bld", "/b"}), Contains("not supported"));
  CHECK_THAT(Error({"--benchmark_logger_type=FileLogger"}), Contains("<BaseBenchmarkLogger|"));
}

TEST_CASE("One of the two checkpoint intervals") {
  CHECK_THAT(Error({"--save_checkpoints_steps=10", "--save_checkpoints_secs=60"}),
             Contains("cannot be combined with --save_checkpoints_secs; use one of them"));
  REQUIRE(Parse({"--save_checkpoints_steps=10"}).ok());
  CHECK(FromFlags<train::TrainOptions>().save_checkpoints_steps == 10);
  REQUIRE(Parse({"--save_checkpoints_steps=", "--save_checkpoints_secs=60"}).ok());
  CHECK(FromFlags<train::TrainOptions>().save_checkpoints_secs == 60);
}

TEST_CASE("--tpu names the TPU of this machine, for the strategy tpu") {
  CHECK_THAT(Error({"--tpu=local"}), Contains("--tpu=local: is for --distribution_strategy=tpu"));
  CHECK_THAT(Error({"--tpu=grpc://10.0.0.1", "--distribution_strategy=tpu"}),
             Contains("--tpu=grpc://10.0.0.1: a run uses the TPU cores of the machine that it runs on"));
  CHECK(Parse({"--tpu=local", "--distribution_strategy=tpu"}).ok());
  CHECK(Parse({"--tpu="}).ok());
}

TEST_CASE("Gradients are clipped in one way, by more than 0") {
  REQUIRE(Parse({"--clip_norm=0.5"}).ok());
  CHECK(FromFlags<train::TrainOptions>().clip_norm == 0.5);
  CHECK_THAT(Error({"--ema_decay=1"}), Contains("--ema_decay=1") && Contains("less than 1"));
  CHECK_THAT(Error({"--clip_value=0"}), Contains("--clip_value=0") && Contains("more than 0"));
  CHECK_THAT(Error({"--clip_norm=1", "--clip_value=1"}), Contains("cannot be combined with --clip_value"));
}

TEST_CASE("Rules for the best evaluations have a metric, a direction and a number") {
  const BaseConfig base = BaseFromFlags(Parse({"--keep_best=loss:min", "--early_stop=accuracy:max:3"}).value());
  CHECK(base.keep_best->metric == "loss");
  CHECK(base.keep_best->number == 1);
  CHECK(base.early_stop->increases);
  CHECK(base.early_stop->number == 3);
  CHECK(Error({"--keep_best=loss:low:3"}) ==
        "flag --keep_best=loss:low:3: needs METRIC:max:N or METRIC:min:N with N of at least 1, such as loss:min:3");
  CHECK_THAT(Error({"--early_stop=accuracy:max"}), Contains("--early_stop=accuracy:max: needs METRIC:max:N"));
}

}  // namespace
}  // namespace official::flags
