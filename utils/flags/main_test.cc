#include "utils/flags/main.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "utils/flags/environment.h"

ABSL_FLAG(double, learning_rate, 1e-4, "Step size of the optimizer.");

namespace official::flags {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

std::string DirectoryOfTests() {
  const char* const directory = std::getenv("TEST_TMPDIR");
  return directory == nullptr ? "." : directory;
}

Outcome RunWith(const std::vector<std::string>& arguments, Body body) {
  const Program program = {
      .name = "test_main",
      .description = "Trains a model on data, in as many words as are needed to fill more than one line of the help.",
      .examples = {{"test_main --train_epochs=5", "Five epochs."}},
      .defaults = {{"batch_size", "100"}, {"data_dir", DirectoryOfTests()}, {"model_dir", DirectoryOfTests()}},
      .flags = {.name = "test", .flags = {{.name = "learning_rate", .range = MoreThan(0)}}},
      .commit = "0123456789ab+changes",
  };
  std::ostringstream out;
  std::ostringstream err;
  const int exit_code = Run(arguments, program, body, out, err);
  return {exit_code, out.str(), err.str()};
}

absl::Status Never(const CommandLine&) {
  FAIL("the body ran");
  return absl::OkStatus();
}

TEST_CASE("A bad flag ends before any work, in one line and a hint") {
  const Outcome outcome = RunWith({"--batch_size=0"}, Never);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out == "");
  CHECK_THAT(outcome.err, StartsWith("FATAL Flags parsing error: flag --batch_size=0: ") && Contains("--helpfull"));
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 2);
}

// The lines of a configuration that are not comments.
std::vector<std::string> FlagsOf(const std::string& dump) {
  std::vector<std::string> flags = absl::StrSplit(dump, '\n', absl::SkipEmpty());
  std::erase_if(flags, [](const std::string& line) { return absl::StartsWith(line, "#"); });
  return flags;
}

TEST_CASE("--dump_config prints what --flagfile reads back, with the origin of each value") {
  const Outcome first =
      RunWith({"--dump_config", "--learning_rate=0.1", "--stop_threshold=0.98", "--hooks=", "--clean"}, Never);
  CHECK(first.exit_code == 0);
  CHECK_THAT(first.out,
             Contains("\n# command line\n--learning_rate=0.1") && Contains("\n# default\n--train_epochs=1\n"));
  CHECK_THAT(first.out, StartsWith("# test_main ") && Contains("commit 0123456789ab+changes"));
  const std::string path = DirectoryOfTests() + "/dumped_flags";
  std::ofstream(path) << first.out;
  const Outcome second = RunWith({"--dump_config", "--flagfile=" + path}, Never);
  CHECK_THAT(second.out, Contains("# " + path + ":") && Contains("--stop_threshold=0.98"));
  CHECK(FlagsOf(second.out).size() > 50);
  CHECK(FlagsOf(second.out) == FlagsOf(first.out));

  const Outcome blank = RunWith({"--dump_config", "--benchmark_test_id=a "}, Never);
  CHECK(blank.exit_code == 2);
  CHECK(blank.out == "");
  CHECK_THAT(blank.err, Contains("--benchmark_test_id=a : ends in a blank"));
}

TEST_CASE("--dump_config tells of the cluster that the environment describes") {
  setenv("TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})", 1);
  const Outcome outcome = RunWith({"--dump_config"}, Never);
  setenv("TF_CONFIG", "[1]", 1);
  const Outcome wrong = RunWith({"--dump_config"}, Never);
  unsetenv("TF_CONFIG");
  CHECK_THAT(outcome.out,
             Contains("\n# cluster of TF_CONFIG: worker 0 at a:1 (chief), worker 1 at b:1 (this process)"));
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.out == "");
}

TEST_CASE("The environment is shown without secrets") {
  const char* const environment[] = {"TERM=dumb",
                                     "SLURM_JWT=ab.cd",
                                     "NOT_OURS=1",
                                     "https_proxy=http://me:p@ss/w@host:1",
                                     "HTTPS_PROXY=me:a@b, c://d@host:1",
                                     "all_proxy=host:1",
                                     "no_proxy=a,b",
                                     "TF_URL=x,http://me:mine@host/",
                                     "NCCL_DEBUG=WARN",
                                     "OFFICIAL_TOKEN=x",
                                     nullptr};
  std::string shown;
  for (const EnvironmentVariable& variable : VariablesThatAreRead(environment)) {
    shown += variable.name + "=" + variable.value + "\n";
  }
  CHECK(shown ==
        "HTTPS_PROXY=***@host:1\nNCCL_DEBUG=WARN\nOFFICIAL_TOKEN=(not shown)\nSLURM_JWT=(not shown)\nTERM=dumb\n"
        "TF_URL=x,http://***@host/\nall_proxy=host:1\nhttps_proxy=http://***@host:1\nno_proxy=a,b\n");
}

TEST_CASE("Variables that change how a run computes are told apart from the others") {
  const char* const environment[] = {"TERM=dumb",
                                     "TF_CONFIG={}",
                                     "OMP_NUM_THREADS=2",
                                     "OMP_WAIT_POLICY=passive",
                                     "OFFICIAL_MAX_ISA=avx2",
                                     "CUDA_VISIBLE_DEVICES=",
                                     nullptr};
  std::string told;
  for (const EnvironmentVariable& variable : VariablesThatChangeRuns(environment)) {
    told += variable.name + "=" + variable.value + " ";
  }
  CHECK(told == "CUDA_VISIBLE_DEVICES= OFFICIAL_MAX_ISA=avx2 OMP_NUM_THREADS=2 ");
}

TEST_CASE("--helpmatch shows the flags whose name or help has a text") {
  const Outcome epochs = RunWith({"--helpmatch=EPOCHS"}, Never);
  CHECK(epochs.exit_code == 0);
  CHECK_THAT(epochs.out, StartsWith("base:\n  -te, --train_epochs\n") && Contains("--epochs_between_evals\n"));
  CHECK_THAT(epochs.out, !Contains("--batch_size\n") && !Contains("--dump_config"));
  CHECK_THAT(RunWith({"--helpmatch=dump_config"}, Never).out,
             StartsWith("general:\n") && Contains("  --dump_config\n"));
  CHECK_THAT(RunWith({"--helpmatch", "older ones are deleted"}, Never).out, Contains("--keep_checkpoint_max\n"));
  const Outcome none = RunWith({"--helpmatch=no such text"}, Never);
  CHECK(none.exit_code == 2);
  CHECK_THAT(none.err, Contains("--helpmatch=no such text: no flag has this text"));
  CHECK_THAT(RunWith({"--helpmatch="}, Never).err, Contains("flag --helpmatch: needs a value"));
}

TEST_CASE("The body's status is the program's") {
  static absl::Status ends_with;
  const auto ending = [](const absl::Status& status) {
    ends_with = status;
    return RunWith({}, [](const CommandLine&) { return ends_with; });
  };
  const Outcome data = ending(absl::DataLossError("train.gz: cut off at byte 7"));
  CHECK(data.exit_code == 65);
  CHECK(data.err == "test_main: train.gz: cut off at byte 7\n");
  CHECK(ending(absl::InvalidArgumentError("x")).exit_code == 2);
  CHECK(ending(absl::NotFoundError("x")).exit_code == 66);
  const Outcome ok = ending(absl::OkStatus());
  CHECK(ok.exit_code == 0);
  CHECK(ok.err == "");
}

TEST_CASE("An exception is an error, not a crash") {
  const Outcome outcome = RunWith({}, [](const CommandLine&) -> absl::Status { throw std::runtime_error("no dice"); });
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err == "test_main: internal error: no dice\n");
}

TEST_CASE("A thread that cannot be started is reported with the limits") {
  const Outcome outcome = RunWith({}, [](const CommandLine&) -> absl::Status {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.err, Contains("cannot start a thread") && Contains("ulimit -u"));
}

TEST_CASE("Memory that cannot be had is reported") {
  const Outcome outcome = RunWith({}, [](const CommandLine&) -> absl::Status { throw std::bad_alloc(); });
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err == "test_main: out of memory\n");
}

TEST_CASE("A limit of instructions that is not known ends before any work; the help lists those that are") {
  setenv("OFFICIAL_MAX_ISA", "avx3", 1);
  const Outcome outcome = RunWith({}, Never);
  const Outcome help = RunWith({"--helpfull"}, Never);
  unsetenv("OFFICIAL_MAX_ISA");
  CHECK(outcome.exit_code == 2);
  CHECK_THAT(outcome.err, StartsWith("test_main: environment variable OFFICIAL_MAX_ISA=avx3: ") && Contains("avx2"));
  CHECK(help.exit_code == 0);
  CHECK_THAT(help.out, Contains("OFFICIAL_MAX_ISA=avx2"));
}

TEST_CASE("The body sees the command line") {
  const Outcome outcome = RunWith({"-bs", "5"}, [](const CommandLine& command_line) {
    CHECK(command_line.given("batch_size"));
    return absl::OkStatus();
  });
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("Output that cannot be written is an error") {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  std::ostringstream err;
  const Program program = {.name = "test_main", .description = "", .examples = {}, .defaults = {}, .flags = {}};
  CHECK(Run({"--help"}, program, Never, out, err) == 74);
  CHECK_THAT(err.str(), Contains("standard output"));
}

TEST_CASE("--help shows description, examples, own and key flags") {
  const Outcome outcome = RunWith({"--help"}, Never);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK_THAT(outcome.out,
             StartsWith("test_main: Trains a model") && Contains("Examples:\n  test_main --train_epochs=5\n") &&
                 Contains("\ntest:\n  --learning_rate\n") && Contains("Step size of the optimizer.") &&
                 Contains("(a number, more than 0; default: '0.0001')") && Contains("\n  -bs, --batch_size\n") &&
                 Contains("(an integer, at least 1; default: '100')") && Contains("--[no]clean") &&
                 Contains("--helpfull"));
  CHECK_THAT(outcome.out, !Contains("--stop_threshold\n") && !Contains("performance:"));
  CHECK(outcome.out.find("\ntest:") < outcome.out.find("\nbase:"));
}

TEST_CASE("--helpfull shows every flag of every group in 80 columns") {
  const Outcome outcome = RunWith({"--helpfull"}, Never);
  CHECK(outcome.exit_code == 0);
  for (const char* text : {"\ntest:", "\nbase:", "\nperformance:", "\nimage:", "\nbenchmark:", "\ndevice:",
                           "\ngeneral:", "-ng, --num_gpus", "default: 1 if there is a GPU, else 0",
                           "one of <fp16|bf16|fp32>; default: 'fp32'", "--flagfile", "--num_tpu_shards"}) {
    CHECK_THAT(outcome.out, Contains(text));
  }
  for (const absl::string_view line : absl::StrSplit(outcome.out, '\n')) {
    // A path without blanks is not broken.
    const bool one_word = absl::StripLeadingAsciiWhitespace(line).find(' ') == absl::string_view::npos;
    CHECK((line.size() <= 80 || one_word));
  }
}

TEST_CASE("--version names program, version and commit") {
  const Outcome outcome = RunWith({"--version"}, Never);
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.out, StartsWith("test_main 0.") && Contains(", commit 0123456789ab+changes, "));
}

TEST_CASE("The body knows the program and the commit that it was built from") {
  const Outcome outcome = RunWith({}, [](const CommandLine& command_line) {
    CHECK(command_line.program() == "test_main");
    CHECK(command_line.commit() == "0123456789ab+changes");
    return absl::OkStatus();
  });
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("A tool shows all its flags in --help") {
  const Program tool = {.name = "tool_main", .description = "Does something.", .words = "FILE", .shared_flags = false};
  std::ostringstream out;
  std::ostringstream err;
  CHECK(Run({"--help"}, tool, Never, out, err) == 0);
  CHECK_THAT(out.str(), StartsWith("tool_main: Does something.\n\nUsage: tool_main FILE\n") &&
                            Contains("\n  --version\n") && !Contains("Try --helpfull"));
}

}  // namespace
}  // namespace official::flags
