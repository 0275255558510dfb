#include "utils/flags/network.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "utils/flags/command_line.h"

ABSL_FLAG(std::string, data, "photographs", "Data set.");
ABSL_FLAG(int, depth, 50, "Layers.");
ABSL_FLAG(std::string, overrides, "", "Parameters.");
ABSL_FLAG(std::optional<std::string>, order, std::nullopt, "Order of channels.");
ABSL_FLAG(std::optional<int>, classes, std::nullopt, "Classes.");
ABSL_FLAG(double, rate, 0.1, "Learning rate.");
ABSL_FLAG(std::vector<std::string>, predict, {}, "Files.");

namespace official::flags {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

std::string Order(absl::string_view value) { return value.empty() ? "last" : std::string(value); }
// Of the overrides only those of the size, the last.
std::string Size(absl::string_view value) {
  const size_t at = value.rfind("size=");
  return at == value.npos ? "" : std::string(value.substr(at, value.find(',', at) - at));
}
// Pictures are small, and have small networks.
absl::Status CheckDepth(const CommandLine&) {
  if (absl::GetFlag(FLAGS_data) == "photographs" || absl::GetFlag(FLAGS_depth) < 50) return absl::OkStatus();
  return FlagError("depth", "is too deep for pictures");
}

Program TestProgram() {
  Program program = {
      .name = "test_main",
      .description = "Tests.",
      .examples = {},
      .dependent_defaults =
          [] {
            std::vector<std::pair<std::string, std::string>> defaults;
            if (absl::GetFlag(FLAGS_data) == "pictures") {
              defaults = {{"depth", "20"}, {"batch_size", "128"}, {"model_dir", "/tmp/pictures"}};
            }
            return defaults;
          },
      .flags = {.name = "test",
                .flags = {{.name = "data", .choices = {"photographs", "pictures"}},
                          {.name = "depth", .short_name = "d", .range = AtLeast(1)},
                          {.name = "overrides"},
                          {.name = "order"},
                          {.name = "classes", .range = AtLeast(2)},
                          {.name = "rate"},
                          {.name = "predict"}},
                .validators = {CheckDepth}},
      .network = {{"data"}, {"depth"}, {"overrides", Size, /*appends=*/true}, {"order", Order}, {"classes"}}};
  return program;
}

// A --model_dir with a checkpoint, and the flags.txt of its training.
class Training {
 public:
  explicit Training(const std::string& flags) {
    static int counter = 0;
    const char* const root = std::getenv("TEST_TMPDIR");
    path_ = absl::StrCat(root == nullptr ? "/tmp" : root, "/network-", getpid(), "-", ++counter);
    std::filesystem::create_directories(path_);
    Write("model.ckpt-7.index", "");
    Write("flags.txt", flags);
  }
  ~Training() { std::filesystem::remove_all(path_); }

  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(absl::StrCat(path_, "/", name), std::ios::binary) << content;
  }
  const std::string& path() const { return path_; }

  absl::StatusOr<CommandLine> Parse(Words words) const {
    words.push_back(absl::StrCat("--model_dir=", path_));
    return CommandLine::Parse(TestProgram(), words);
  }
  std::string Taken(const Words& words) const { return Parse(words).value().taken_from_training(); }
  std::string Error(const Words& words) const {
    const absl::Status status = Parse(words).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), !Contains("\n"));
    return std::string(status.message());
  }

 private:
  std::string path_;
};

TEST_CASE("Who uses what was trained has the network of the training") {
  const Training training("--data=photographs\n--depth=18\n--order=first\n--rate=0.7\n--batch_size=9\n--clean=true\n");
  for (const Words& words : {Words{"--predict=a.png"}, Words{"--eval_only"}, Words{"--export_dir=out"}}) {
    CHECK(training.Taken(words) == "--depth=18 --order=first");
    CHECK(absl::GetFlag(FLAGS_depth) == 18);
    CHECK(absl::GetFlag(FLAGS_order) == "first");
    CHECK(absl::GetFlag(FLAGS_rate) == 0.1);  // no flag of the network
  }
  const CommandLine command_line = training.Parse({"--predict=a.png"}).value();
  CHECK_FALSE(command_line.given("depth"));
  CHECK_THAT(command_line.AllFlagsText(), Contains("--depth=18\n") && Contains("--clean=false\n") &&
                                              Contains("--batch_size=32\n") && Contains("--rate=0.1\n"));
  CHECK(training.Taken({"--predict=a.png", "-d", "18"}) == "--order=first");
}

TEST_CASE("What follows from the network follows from that of the training") {
  const Training training("--data=pictures\n--depth=32\n");
  const CommandLine command_line = training.Parse({"--eval_only"}).value();
  CHECK(command_line.taken_from_training() == "--data=pictures --depth=32");
  CHECK_THAT(command_line.AllFlagsText(), Contains("--depth=32\n") && Contains("--batch_size=128\n") &&
                                              Contains(absl::StrCat("--model_dir=", training.path(), "\n")));
}

TEST_CASE("A process whose tasks others run does not look into --model_dir") {
  const Training training("--data=photographs\n--depth=18\n");
  for (const std::string flag : {"--serve=127.0.0.1:4000", "--remote_cluster={}"}) {
    CHECK(training.Parse({flag}).ok());
    CHECK(training.Taken({flag, "--eval_only"}) == "");
  }
}

TEST_CASE("A run with another network is refused with both values and what to add") {
  const Training training("--data=photographs\n--depth=18\n--rate=0.7\n");
  const std::string expected =
      absl::StrCat("the network in --model_dir=", training.path(),
                   " was trained with --depth=18, but this command has --depth=50; add --depth=18 to use that network, "
                   "or name another --model_dir");
  CHECK(training.Error({}) == expected);
  CHECK(training.Error({"--rate=0.5"}) == expected);
  CHECK(training.Error({"--depth=50", "--predict=a.png"}) == expected);
  CHECK(training.Error({"--depth=50", "--eval_only"}) == expected);
  CHECK_THAT(training.Error({"--data=pictures"}),
             Contains("trained with --data=photographs and --depth=18, but this command has --data=pictures and "
                      "--depth=20; add --data=photographs --depth=18"));
  // What is taken does not go with what is given.
  CHECK_THAT(Training("--data=photographs\n--depth=101\n").Error({"--data=pictures", "--predict=a.png"}),
             Contains("trained with --data=photographs and --depth=101, but this command has --data=pictures and "
                      "--depth=20; add"));
  CHECK(training.Taken({"--depth=18"}).empty());  // the same network, not taken from there
  CHECK_THAT(training.Error({"--depth=0"}), Contains("flag --depth=0: "));
}

TEST_CASE("A run that does not continue from the checkpoint may have another network") {
  const Training training("--depth=18\n");
  for (const Words& words : {Words{"--clean"}, Words{"--clean", "--export_dir=out"}, Words{"--resume=never"}}) {
    CHECK(training.Taken(words).empty());
    CHECK(absl::GetFlag(FLAGS_depth) == 50);
  }
  std::filesystem::remove(training.path() + "/model.ckpt-7.index");
  CHECK(training.Taken({}).empty());
  CHECK(training.Taken({"--predict=a.png"}).empty());
  CHECK(absl::GetFlag(FLAGS_depth) == 50);
}

TEST_CASE("Values of one network are not a difference, and appended parameters come on top") {
  const Training training("--order=\n--overrides=size=7,speed=3\n");
  CHECK(training.Parse({"--order=last", "--overrides=speed=4,size=9,size=7"}).ok());
  CHECK_THAT(training.Error({"--order=first", "--overrides=size=7"}), Contains("no --order, but this command has "
                                                                               "--order=first; add --order= to"));
  CHECK_THAT(training.Error({"--overrides=speed=3"}), Contains("trained with --overrides=size=7,speed=3, but this"));
  CHECK(training.Taken({"--predict=a", "--overrides=speed=4"}) == "--overrides=size=7,speed=3");
  CHECK(absl::GetFlag(FLAGS_overrides) == "size=7,speed=3,speed=4");
  CHECK_THAT(training.Error({"--predict=a", "--overrides=size=8"}), Contains("has --overrides=size=7,speed=3,size=8"));
}

TEST_CASE("A run that trains and exports has of appended parameters only the network's") {
  const Training training("--overrides=size=7,speed=3\n");
  CHECK(training.Taken({"--export_dir=out", "--overrides=speed=4"}) == "--overrides=size=7");
  CHECK(absl::GetFlag(FLAGS_overrides) == "size=7,speed=4");
  CHECK(training.Taken({"--export_dir=out"}) == "--overrides=size=7");
  CHECK(absl::GetFlag(FLAGS_overrides) == "size=7");
  // Given in full, again and again.
  CHECK(training.Taken({"--export_dir=out", "--overrides=speed=4,size=7"}).empty());
  CHECK(absl::GetFlag(FLAGS_overrides) == "speed=4,size=7");
  CHECK(training.Taken({"--export_dir=out", "--eval_only", "--overrides=size=7"}) == "--overrides=size=7,speed=3");
}

TEST_CASE("A flag that is left to the data has the value of the training, and is not a difference") {
  const Training training("--classes=7\n");
  CHECK(training.Taken({}) == "--classes=7");
  CHECK(absl::GetFlag(FLAGS_classes) == 7);
  CHECK(training.Taken({"--eval_only"}) == "--classes=7");
  CHECK_THAT(training.Error({"--classes=8"}), Contains("trained with --classes=7, but this command has --classes=8;"));
  CHECK(Training("--classes=\n").Parse({"--classes=8"}).ok());
}

TEST_CASE("A tool always has the network of the training") {
  Program program = TestProgram();
  program.shared_flags = false;
  program.dependent_defaults = nullptr;
  program.flags.flags.push_back({.name = "model_dir"});
  const Training training("--depth=18\n");
  const CommandLine command_line = CommandLine::Parse(program, {"--model_dir=" + training.path()}).value();
  CHECK(command_line.taken_from_training() == "--depth=18");
}

TEST_CASE("A flags.txt that is none, or of another program, changes nothing") {
  for (const std::string& flags :
       {std::string(), std::string("no flags\n--\n--=\n=\n--depth\n-depth=18\ndepth=18\n"),
        std::string("--depth=deep\n--data=letters\n--unknown=7\n--model_dir=/elsewhere\n"),
        std::string("--data=pictures\n--depth=70\n"), std::string("--depth=0\n--depth=18\x01\n--depth=1\0008\n", 32),
        std::string(2 << 20, 'x') + "\n--depth=18\n"}) {
    const Training training(flags);
    CHECK(training.Taken({"--predict=a.png"}).empty());
    CHECK(absl::GetFlag(FLAGS_depth) == 50);
    CHECK(training.Taken({}).empty());
  }
  const Training training("--depth=18\n");
  std::filesystem::remove(training.path() + "/flags.txt");
  CHECK(training.Taken({"--eval_only"}).empty());
  CHECK(mkfifo((training.path() + "/flags.txt").c_str(), 0600) == 0);
  CHECK(training.Taken({"--eval_only"}).empty());
  std::filesystem::remove(training.path() + "/flags.txt");
  std::filesystem::create_directory(training.path() + "/flags.txt");
  CHECK(training.Taken({"--eval_only"}).empty());
  CHECK(absl::GetFlag(FLAGS_depth) == 50);
}

TEST_CASE("A batch size that is to be chosen is that of the training that goes on") {
  const Training training("--batch_size=48\n");
  Program program = TestProgram();
  program.rehearses = true;
  const auto parse = [&](const Words& words) {
    Words all = {"--model_dir=" + training.path()};
    all.insert(all.end(), words.begin(), words.end());
    return CommandLine::Parse(program, all).value();
  };
  const CommandLine goes_on = parse({"--batch_size=auto"});
  CHECK(goes_on.ValueOf("batch_size") == "48");
  CHECK(goes_on.taken_from_training() == "--batch_size=48");
  CHECK_THAT(goes_on.AllFlagsText(), Contains("--batch_size=48\n"));
  CHECK(parse({"--batch_size=9"}).ValueOf("batch_size") == "9");
  CHECK(parse({}).ValueOf("batch_size") == "32");
  CHECK(parse({"--batch_size=auto", "--clean"}).ValueOf("batch_size") == "0");
  CHECK(parse({"--batch_size=auto", "--resume=never"}).ValueOf("batch_size") == "0");
  for (const char* text : {"", "--batch_size=auto\n", "--batch_size=0\n", "--batch_size=many\n"}) {
    training.Write("flags.txt", text);
    CHECK(parse({"--batch_size=auto"}).ValueOf("batch_size") == "0");
  }
}

TEST_CASE("In a cluster of several tasks, no training says the batch size") {
  const Training training("--batch_size=48\n");
  Program program = TestProgram();
  program.rehearses = true;
  const Words words = {"--model_dir=" + training.path(), "--batch_size=auto"};
  setenv("TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})", 1);
  const CommandLine of_two = CommandLine::Parse(program, words).value();
  unsetenv("TF_CONFIG");
  CHECK(of_two.ValueOf("batch_size") == "0");
  setenv("TF_CONFIG", R"({"cluster": {"chief": ["a:1"], "evaluator": ["b:1"]}, "task": {"type": "chief", "index": 0}})",
         1);
  CHECK(CommandLine::Parse(program, words).value().ValueOf("batch_size") == "48");  // an evaluator does not train
  unsetenv("TF_CONFIG");
  CHECK(CommandLine::Parse(program, words).value().ValueOf("batch_size") == "48");
}

}  // namespace
}  // namespace official::flags
