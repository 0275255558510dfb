// What a client asks for, and what a server lets it ask for.

#include "utils/run/standalone/job.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "utils/files/files.h"

ABSL_FLAG(double, learning_rate, 1e-4, "Step size of the optimizer.");

namespace official::run {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

flags::Program TestProgram() {
  return {.name = "test_main",
          .description = "Trains.",
          .defaults = {{"data_dir", "/data"}, {"model_dir", "/model"}},
          .flags = {.name = "test", .flags = {{.name = "learning_rate", .short_name = "lr"}}},
          .words = "IMAGE..."};
}

flags::CommandLine CommandLineOf(const Words& arguments) {
  return flags::CommandLine::Parse(TestProgram(), arguments).value();
}

Job JobWith(const std::string& name, const std::string& value) {
  Job job = JobOf(CommandLineOf({})).value();
  job.flags.emplace_back(name, value);
  return job;
}

std::string Refused(const Job& job, const Words& server) {
  const absl::Status status = CheckJob(job, CommandLineOf(server));
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("A job has the flags that a command line gives, by their long names, but not those of one process") {
  const Job job =
      JobOf(CommandLineOf({"-lr", "0.5", "--clean", "--nohooks_that_do_not_exist", "--undefok=hooks_that_do_not_exist",
                           "--run_secret_file=/secret", "--insecure_cluster", "--tls_ca=/ca", "--remote_cluster={}"}))
          .value();
  CHECK(job.program == "test_main");
  CHECK(job.flags == std::vector<std::pair<std::string, std::string>>{{"clean", "true"}, {"learning_rate", "0.5"}});
}

TEST_CASE("Words name files of the client's machine") {
  CHECK_THAT(std::string(JobOf(CommandLineOf({"seven.png"})).status().message()),
             Contains("the word 'seven.png' is for this machine"));
}

TEST_CASE("A job comes over as it was") {
  const Job job = JobWith("model_dir", std::string("\xff\0 --clean", 10));
  const Job other = UnpackJob(PackJob(job)).value();
  CHECK(other.program == job.program);
  CHECK(other.version == job.version);
  CHECK(other.flags == job.flags);
}

TEST_CASE("What is no job is refused") {
  const Words job = PackJob(JobWith("lr", "1"));
  CHECK(UnpackJob(job).ok());
  CHECK_FALSE(UnpackJob({}).ok());
  CHECK_FALSE(UnpackJob({"job", "test_main"}).ok());
  CHECK_FALSE(UnpackJob({job.begin(), job.end() - 1}).ok());
  Words start = job;
  start[0] = "start";
  CHECK_FALSE(UnpackJob(start).ok());
}

TEST_CASE("A server lets a client give the flags that it does not give itself") {
  const Words server = {"--serve=127.0.0.1:4000", "--data_dir=/mnist"};
  const Job job = JobWith("learning_rate", "0.5");
  CHECK(CheckJob(job, CommandLineOf(server)).ok());
  CHECK(Refused(JobWith("data_dir", "/etc"), server) ==
        "flag --data_dir=/etc: the server was started with --data_dir=/mnist, which no client changes; leave it out");
  // Also to its own value, and to none.
  CHECK_THAT(Refused(JobWith("data_dir", "/mnist"), server), Contains("which no client changes"));
  CHECK_THAT(Refused(JobWith("export_dir", "/etc"), {"--export_dir="}), Contains("was started with --export_dir="));
}

TEST_CASE("What is for one process alone comes from no client") {
  for (const char* const name : {"serve", "remote_cluster", "workers", "run_secret_file", "tls_cert", "tls_key",
                                 "tls_ca", "insecure_cluster", "listen_on_all_interfaces"}) {
    CHECK(Refused(JobWith(name, "true"), {}) ==
          absl::StrCat("flag --", name, "=true: a client may not give it; give it to the server"));
  }
}

TEST_CASE("What is no flag of the program is refused, also what every command line takes") {
  for (const char* const name : {"flagfile", "undefok", "lr", "help", "", "clean=true --serve"}) {
    CHECK_THAT(Refused(JobWith(name, "/etc/passwd"), {}), Contains("there is no such flag"));
  }
}

TEST_CASE("A client of another program or version is refused") {
  Job job = JobWith("clean", "true");
  job.version += "+changes";
  CHECK_THAT(Refused(job, {}), Contains("it has version ") && Contains("+changes; start the same program as both"));
  job.program = "other_main";
  CHECK_THAT(Refused(job, {}), Contains("it runs test_main, and the client is other_main"));
}

TEST_CASE("A flag that the server has from a file is fixed, be it the default") {
  const char* const folder = std::getenv("TEST_TMPDIR");
  const std::string path = absl::StrCat(folder ? folder : "/tmp", "/server-", getpid(), ".flags");
  REQUIRE(files::WriteFileAtomically(path, "--learning_rate=0.0001\n--export_dir=\n").ok());
  const std::string flag_file = absl::StrCat("--flagfile=", path);
  CHECK_THAT(Refused(JobWith("learning_rate", "0.5"), {flag_file}), Contains("the server was started with"));
  CHECK(ArgumentsOf(JobWith("clean", "true"), CommandLineOf({flag_file})) ==
        Words{"--learning_rate=0.0001", "--clean=true"});  // no empty default
  CHECK_THAT(Refused(JobWith("export_dir", "/etc"), {flag_file}), Contains("was started with --export_dir="));
}

TEST_CASE("A text of the other side is one line") {
  CHECK(OneLine("a\nb\x1b[31m c\t\xc3\xa4") == "a b [31m c \xc3\xa4");
}

TEST_CASE("A task has the flags of the server and of the job") {
  const Job job = JobWith("model_dir", "/a b");
  const Words arguments =
      ArgumentsOf(job, CommandLineOf({"--serve=127.0.0.1:4000", "-lr=0.5", "--run_secret_file=/secret"}));
  CHECK(arguments == Words{"--learning_rate=0.5", "--run_secret_file=/secret", "--model_dir=/a b"});
}

}  // namespace
}  // namespace official::run
