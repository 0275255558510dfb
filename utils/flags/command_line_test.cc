#include "utils/flags/command_line.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "utils/flags/base.h"

ABSL_FLAG(double, learning_rate, 1e-4, "Step size.");
ABSL_FLAG(double, dropout_rate, 0.4, "Share of dropped units.");
ABSL_FLAG(std::vector<std::string>, layers, std::vector<std::string>({"64", "32"}), "Sizes.");
ABSL_FLAG(std::string, dataset, "ml-1m", "Data set.");
ABSL_FLAG(std::string, images_dir, "", "Folder of images.");
ABSL_FLAG(std::optional<std::string>, predict, std::nullopt, "File.");
ABSL_DECLARE_FLAG(bool, clean);
ABSL_DECLARE_FLAG(std::string, data_dir);

namespace official::flags {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Words = std::vector<std::string>;

Program TestProgram() {
  return {
      .name = "test_main",
      .description = "Tests.",
      .examples = {},
      .defaults = {{"data_dir", "/tmp/test_data"}, {"te", "40"}},
      .flags = {.name = "test",
                .flags = {{.name = "learning_rate", .short_name = "lr", .range = MoreThan(0)},
                          {.name = "dropout_rate", .range = Fraction()},
                          {.name = "layers"},
                          {.name = "dataset", .choices = {"ml-1m", "ml-20m"}, .any_case = true},
                          {.name = "predict"}}},
  };
}

absl::StatusOr<CommandLine> Parse(const Words& words) { return CommandLine::Parse(TestProgram(), words); }

// The base group as it is after a command line that must be right.
BaseConfig Base(const Words& words) {
  const CommandLine command_line = Parse(words).value();  // value() throws, so Catch2 prints the Status
  return BaseFromFlags(command_line);
}

std::string Error(const Words& words) {
  const absl::Status status = Parse(words).status();
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

// A flag file in the test's directory; removed at the end.
class FlagFile {
 public:
  FlagFile(const std::string& name, const std::string& content) {
    const char* directory = std::getenv("TEST_TMPDIR");
    path_ = std::string(directory == nullptr ? "/tmp" : directory) + "/" + std::to_string(getpid()) + name;
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~FlagFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  std::string flag() const { return "--flagfile=" + path_; }

 private:
  std::string path_;
};

// The origin of a flag's value.
std::string Origin(const CommandLine& command_line, absl::string_view name) {
  for (const CommandLine::Group& group : command_line.groups()) {
    for (const CommandLine::Flag& flag : group.flags) {
      if (flag.spec.name == name) return flag.origin;
    }
  }
  return "no such flag";
}

TEST_CASE("A flag knows where its value is from") {
  const FlagFile file("origin", "# sizes\n--batch_size=7\n--lr=0.5\n");
  const CommandLine command_line = Parse({"--layers=1", file.flag(), "-lr", "0.25"}).value();
  CHECK(Origin(command_line, "layers") == "command line");
  CHECK(Origin(command_line, "batch_size") == file.path() + ":2");
  CHECK(Origin(command_line, "learning_rate") == "command line");  // after the file
  CHECK(Origin(command_line, "dropout_rate") == "default");
  Program program = TestProgram();
  program.dependent_defaults = [] { return std::vector<std::pair<std::string, std::string>>{{"layers", "2"}}; };
  CHECK_THAT(Origin(CommandLine::Parse(program, {}).value(), "layers"), Contains("other flags decide"));
}

TEST_CASE("--completion ends the command line, and --dump_config checks all of it") {
  CHECK(Parse({"--completion=zsh", "--batch_size=0"}).value().request_value() == "zsh");
  CHECK(Parse({"--completion", "fish"}).value().request() == CommandLine::Request::kCompletion);
  CHECK_THAT(Error({"--completion=ksh"}), Contains("--completion=ksh: needs one of <bash|zsh|fish>"));
  CHECK_THAT(Error({"--completion"}), Contains("needs one of <bash|zsh|fish>"));
  CHECK(Parse({"--dump_config", "-bs", "5"}).value().request() == CommandLine::Request::kDumpConfig);
  CHECK_THAT(Error({"--dump_config", "--batch_size=0"}), Contains("flag --batch_size=0: "));
}

TEST_CASE("A rehearsal is checked as a run, and is no prediction") {
  CHECK_THAT(Error({"--dry_run"}), Contains("unknown flag --dry_run"));
  Program program = TestProgram();
  program.rehearses = true;
  const auto parse = [&](const Words& words) { return CommandLine::Parse(program, words); };
  CHECK(parse({"--dry_run", "-bs", "5"}).value().request() == CommandLine::Request::kDryRun);
  CHECK(parse({"-bs", "5", "--print_schedule"}).value().request() == CommandLine::Request::kPrintSchedule);
  CHECK_THAT(std::string(parse({"--dry_run", "-bs", "0"}).status().message()), Contains("flag --batch_size=0: "));
  CHECK_THAT(std::string(parse({"--dry_run", "--predict=a"}).status().message()),
             Contains("--predict=a: cannot be combined with --dry_run"));
}

TEST_CASE("A batch size is chosen by programs that train, which take the word and not its 0") {
  CHECK_THAT(Error({"--batch_size=auto"}), Contains("--batch_size=auto: needs an integer, at least 1"));
  Program program = TestProgram();
  program.rehearses = true;
  const auto parse = [&](const Words& words) { return CommandLine::Parse(program, words); };
  const CommandLine command_line = parse({"-bs", "auto"}).value();
  CHECK(BaseFromFlags(command_line).batch_size == 0);
  const std::string text = command_line.AllFlagsText();
  CHECK_THAT(text, Contains("--batch_size=auto\n"));
  const FlagFile file("auto", text);
  CHECK(parse({"--flagfile=" + file.path()}).value().AllFlagsText() == text);
  for (const char* zero : {"0", "00", "-0", "AUTO"}) {
    const absl::Status status = parse({"--batch_size", zero}).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Contains(absl::StrCat("--batch_size=", zero, ": needs an integer, at least 1, or auto")));
  }
}

TEST_CASE("--env is a flag of programs that answer it, which need no other") {
  CHECK_THAT(Error({"--env"}), Contains("unknown flag --env"));
  Program program = TestProgram();
  program.environment = [](const Program&, bool) { return ""; };
  program.defaults.emplace_back("model_dir", "");  // is required
  const auto parse = [&](const Words& words) { return CommandLine::Parse(program, words); };
  CHECK(parse({"--env", "--output=json"}).value().request() == CommandLine::Request::kEnvironment);
  CHECK_THAT(std::string(parse({"--env", "--output=yaml"}).status().message()), Contains("--output=yaml: needs"));
  CHECK_THAT(std::string(parse({"--env", "--outputs=json"}).status().message()), Contains("unknown flag --outputs"));
  CHECK_FALSE(parse({}).ok());
}

TEST_CASE("Long and short names, one or two dashes, = or the next word are alike") {
  for (const Words& words : std::vector<Words>{{"--batch_size=100"},
                                               {"--batch_size", "100"},
                                               {"-batch_size=100"},
                                               {"-batch_size", "100"},
                                               {"-bs", "100"},
                                               {"--bs=100"},
                                               {"-bs=7", "--batch_size=100"}}) {
    CHECK(Base(words).batch_size == 100);
  }
}

TEST_CASE("Booleans") {
  for (const char* word : {"--clean", "-clean", "--clean=true", "--clean=T", "--clean=1", "--clean=True"}) {
    CHECK(Base({word}).clean);
  }
  for (const char* word : {"--noclean", "-noclean", "--clean=false", "--clean=f", "--clean=0", "--clean=FALSE"}) {
    CHECK_FALSE(Base({"--clean", word}).clean);
  }
  CHECK_FALSE(Base({"--noshuffle"}).shuffle);
}

TEST_CASE("Negative numbers can be the next word") {
  CHECK(Base({"-ng", "-1"}).num_gpus == -1);
  CHECK(Base({"--stop_threshold", "-0.5"}).stop_threshold == -0.5);
}

TEST_CASE("Lists are split at commas and stripped; empty is none") {
  REQUIRE(Parse({"--layers= 8 ,4,2 "}).ok());
  CHECK(absl::GetFlag(FLAGS_layers) == Words{"8", "4", "2"});
  REQUIRE(Parse({"--layers", ""}).ok());
  CHECK(absl::GetFlag(FLAGS_layers).empty());
  CHECK(Base({"--hooks", ""}).hooks.empty());
  CHECK(Base({"-hk", "loggingtensorhook, PROFILERHOOK"}).hooks == Words{"LoggingTensorHook", "ProfilerHook"});
}

TEST_CASE("Choices without regard to case get the program's spelling") {
  REQUIRE(Parse({"--dataset=ML-20M"}).ok());
  CHECK(absl::GetFlag(FLAGS_dataset) == "ml-20m");
}

TEST_CASE("The program's defaults hold until a flag is given, and in the next parse again") {
  CHECK(Base({}).data_dir == "/tmp/test_data");
  CHECK(Base({}).train_epochs == 40);
  CHECK(Base({"-dd", "/d", "-te", "2"}).data_dir == "/d");
  CHECK(Base({}).data_dir == "/tmp/test_data");
  CHECK(Base({}).train_epochs == 40);
}

TEST_CASE("given() is about the user's choice, by whatever name") {
  CHECK_FALSE(Base({}).data_dir_given);
  CHECK(Base({"-dd", "/d"}).data_dir_given);
  CHECK(Base({"--data_dir=/tmp/test_data"}).data_dir_given);
  CHECK(Parse({"--noclean"})->given("clean"));
  CHECK_FALSE(Parse({"--noclean"})->given("data_dir"));
}

TEST_CASE("An optional flag can be unset again") {
  CHECK(Base({"--num_gpus=4", "--num_gpus="}).num_gpus == std::nullopt);
  CHECK(Base({"--export_dir=/e"}).export_dir == "/e");
  CHECK(Base({"--export_dir=/e", "--export_dir", ""}).export_dir == std::nullopt);
  CHECK(Base({"--export_dir=/e", "--export_format=onnx"}).export_format == ExportFormat::kOnnx);
}

TEST_CASE("Bad values name the flag, the value and what would be right") {
  struct Case {
    Words words;
    Words said;
  };
  const std::vector<Case> cases = {
      {{"--batch_size", "abc"}, {"--batch_size=abc", "an integer, at least 1"}},
      {{"-bs", "abc"}, {"--batch_size=abc"}},
      {{"--batch_size="}, {"--batch_size=:", "an integer"}},
      {{"--batch_size=0"}, {"--batch_size=0", "at least 1"}},
      {{"--batch_size=-5"}, {"--batch_size=-5", "at least 1"}},
      {{"--batch_size=1.5"}, {"--batch_size=1.5", "an integer"}},
      {{"--batch_size=10000000000"}, {"--batch_size=10000000000", "an integer, at least 1, at most 2147483647"}},
      {{"--train_epochs=-1"}, {"--train_epochs=-1", "at least 0"}},
      {{"--num_gpus=-2"}, {"--num_gpus=-2", "at least -1"}},
      {{"--seed=-1"}, {"--seed=-1", "at least 0"}},
      {{"--seed=18446744073709551616"}, {"at least 0, at most 18446744073709551615"}},
      {{"--max_train_steps=9223372036854775808"}, {", at most 9223372036854775807"}},
      {{"--stop_threshold=high"}, {"--stop_threshold=high", "a number"}},
      {{"--stop_threshold=nan"}, {"--stop_threshold=nan", "a number"}},
      {{"--stop_threshold=inf"}, {"--stop_threshold=inf", "a number"}},
      {{"--learning_rate=0"}, {"--learning_rate=0", "more than 0"}},
      {{"--dropout_rate=1"}, {"--dropout_rate=1", "at least 0 and less than 1"}},
      {{"--clean=maybe"}, {"--clean=maybe", "a boolean"}},
      {{"--noclean=true"}, {"--noclean", "takes no value"}},
      {{"--nobatch_size"}, {"--batch_size is not a boolean, it needs an integer, at least 1"}},
      {{"--dataset=ml-2m"}, {"--dataset=ml-2m", "<ml-1m|ml-20m>"}},
      {{"--dtype=int8"}, {"--dtype=int8", "needs one of <fp16|bf16|fp32>"}},
      {{"--dtype=FP16"}, {"--dtype=FP16", "<fp16|bf16|fp32>; did you mean fp16?"}},
      {{"--dtype=float32"}, {"needs one of <fp16|bf16|fp32>; did you mean fp32?"}},
      {{"--dtype=half"}, {"did you mean fp16?"}},
      {{"--dtype=bfloat16"}, {"did you mean bf16?"}},
      {{"--log_format=jsno"}, {"<auto|bar|simple|json|none>; did you mean json?"}},
      {{"--dtype="}, {"--dtype", "<fp16|bf16|fp32>"}},
      {{"--hooks=foo"}, {"--hooks=foo", "'foo' is not one of them", "LoggingTensorHook|ProfilerHook"}},
      {{"--hooks=ProfileHook"}, {"did you mean ProfilerHook?"}},
      {{"--hooks=StepCounterHook,StopAtStepHook"}, {"'StepCounterHook'"}},
      {{"--hooks=LoggingTensorHook,,ProfilerHook"}, {"''"}},
      {{"--export_dir=e", "--export_format=ONXN"}, {"<saved_model|onnx|both>; did you mean onnx?"}},
      {{"--export_format=onnx"}, {"--export_format=onnx", "needs --export_dir"}},
      {{"--export_format=both", "--export_dir="}, {"--export_format=both", "needs --export_dir"}},
      {{"--eval_only", "--clean"}, {"--eval_only=true: cannot be combined with --clean"}},
      {{"--clean", "--resume=must"}, {"--resume=must: cannot be combined with --clean"}},
      {{"--data_dir="}, {"flag --data_dir is required: Directory"}},
      {{"--model_dir=~/run1"}, {"--model_dir=~/run1: ~ is not expanded here; write /home/user/run1, or ./~/run1"}},
      {{"--data_dir=a\nb"}, {"--data_dir=a\\nb", "control characters"}},
      {{"--data_dir=a b "}, {"--data_dir=a b : ends in a blank, which a flag file cannot hold"}},
  };
  setenv("HOME", "/home/user", 1);
  for (const Case& c : cases) {
    const std::string error = Error(c.words);
    for (const std::string& said : c.said) CHECK_THAT(error, Contains(said));
    CHECK_THAT(error, !Contains("\n"));
  }
}

TEST_CASE("The last value holds, and only it is checked against the range") {
  CHECK(Base({"--batch_size=0", "--batch_size=5"}).batch_size == 5);
}

TEST_CASE("A missing value is noticed, also before another flag") {
  CHECK_THAT(Error({"--batch_size"}), Contains("--batch_size: needs a value, an integer, at least 1"));
  CHECK_THAT(Error({"--data_dir", "--clean"}), Contains("--data_dir: needs a value") && Contains("--clean"));
  CHECK_THAT(Error({"--data_dir", "-bs=5"}), Contains("needs a value"));
  CHECK_THAT(Error({"--data_dir", "--noclean"}), Contains("needs a value"));
  CHECK_THAT(Error({"--data_dir", "--"}), Contains("needs a value"));
  CHECK_THAT(Error({"--flagfile"}), Contains("--flagfile: needs a value"));
  CHECK(Base({"--data_dir", "-strange"}).data_dir == "-strange");
}

TEST_CASE("An unknown flag is answered with the nearest name") {
  CHECK(Error({"--batchsize=5"}) == "unknown flag --batchsize; did you mean --batch_size?");
  CHECK_THAT(Error({"--batch-size", "5"}), Contains("did you mean --batch_size?"));
  CHECK_THAT(Error({"--noclaen"}), Contains("did you mean --noclean?"));
  CHECK_THAT(Error({"--hlep"}), Contains("did you mean --help?"));
  CHECK(Error({"--frobnicate"}) == "unknown flag --frobnicate");
  CHECK_THAT(Error({"--batch"}),
             Contains("did you mean --batch_size or --overfit_batches?"));  // no abbreviation, but a hint
  CHECK_THAT(Error({"--=5"}), Contains("unknown flag"));
  CHECK_THAT(Error({"---clean"}), Contains("did you mean --clean?"));
}

TEST_CASE("A flag's name in other programs is answered with ours") {
  struct Case {
    std::string given, meant;
  };
  const std::vector<Case> cases = {{"--multi_gpu", "--num_gpus=-1 (all GPUs)"},
                                   {"--multi-gpu", "--num_gpus=-1 (all GPUs)"},
                                   {"--gpus=2", "--num_gpus"},
                                   {"--no_cuda", "--num_gpus=0"},
                                   {"--epochs=5", "--train_epochs"},
                                   {"--output_dir=x", "--model_dir"},
                                   {"--checkpoint_dir=x", "--model_dir"},
                                   {"--max_steps=5", "--max_train_steps"},
                                   {"--train_steps=5", "--max_train_steps"},
                                   {"--fp16", "--dtype=fp16"},
                                   {"--amp", "--dtype=fp16"},
                                   {"--bfloat16", "--dtype=bf16"},
                                   {"--gradient_accumulation_steps=2", "--grad_accum_steps"},
                                   {"--num_workers=4", "--num_parallel_calls"},
                                   {"--overwrite", "--clean"},
                                   {"--manual_seed=4", "--seed"},
                                   {"--base_learning_rate=1", "--learning_rate"}};
  for (const Case& c : cases) CHECK_THAT(Error({c.given}), EndsWith("; did you mean " + c.meant + "?"));
}

TEST_CASE("A name in other programs leads only to a flag that the program has") {
  Program tool = TestProgram();
  tool.flags.flags = {{.name = "data_dir"}};
  tool.defaults = {};
  tool.shared_flags = false;
  CHECK(CommandLine::Parse(tool, {"--multi_gpu"}).status().message() == "unknown flag --multi_gpu");
  tool.in_place_of = [](const std::string& name) { return name == "heads" ? "--params=heads=N" : ""; };
  CHECK(CommandLine::Parse(tool, {"--heads=3"}).status().message() ==
        "unknown flag --heads; did you mean --params=heads=N?");
}

TEST_CASE("A required flag that is missing is named with what it is for") {
  Program tool = TestProgram();
  tool.flags.flags = {{.name = "images_dir", .required = true}};
  tool.defaults = {};
  tool.shared_flags = false;
  CHECK(CommandLine::Parse(tool, {}).status().message() == "flag --images_dir is required: Folder of images.");
}

TEST_CASE("A program has its own help text for a shared flag") {
  Program program = TestProgram();
  program.help = {{"stop_threshold", "Stop at this HR."}};
  const auto help_of = [](const CommandLine& command_line, absl::string_view name) {
    for (const CommandLine::Group& group : command_line.groups()) {
      for (const CommandLine::Flag& flag : group.flags) {
        if (flag.spec.name == name) return HelpOf(flag);
      }
    }
    return std::string();
  };
  CHECK(help_of(CommandLine::Parse(program, {}).value(), "stop_threshold") == "Stop at this HR.");
  CHECK(help_of(Parse({}).value(), "stop_threshold") != "Stop at this HR.");
  CHECK(help_of(Parse({}).value(), "learning_rate") == "Step size.");
}

TEST_CASE("--undefok lets unknown flags pass, wherever it stands") {
  CHECK(Base({"--frobnicate=1", "-bs", "5", "--undefok=frobnicate, other"}).batch_size == 5);
  CHECK(Parse({"--undefok", "frobnicate", "--nofrobnicate"}).ok());
  CHECK_THAT(Error({"--undefok=other", "--frobnicate"}), Contains("--frobnicate"));
  CHECK_THAT(Error({"--undefok=batch_size", "--batch_size=x"}), Contains("--batch_size=x"));
}

TEST_CASE("Words that are not flags are refused, or kept for a program that takes them") {
  CHECK_THAT(Error({"train"}), Contains("'train'"));
  CHECK_THAT(Error({"--shuffle", "False"}),
             Contains("'False'") && EndsWith("a boolean takes its value after =, as in --shuffle=False"));
  CHECK_THAT(Error({"-bs=5", "true"}), EndsWith("as in --clean=true"));
  CHECK_THAT(Error({"\u2014batch_size=3"}), Contains("'\u2014batch_size=3'") && EndsWith("write --batch_size=3"));
  CHECK_THAT(Error({"\u2013clean"}), EndsWith("begins with another dash than -; write --clean"));
  CHECK_THAT(Error({"-"}), Contains("'-'"));
  CHECK_THAT(Error({"--", "--batch_size=5"}), Contains("'--batch_size=5'"));
  CHECK(Parse({"--"}).ok());

  Program program = TestProgram();
  program.words = "IMAGE...";
  const auto command_line = CommandLine::Parse(program, {"--predict", "a.png", "b.png", "-bs=5", "--", "-c.png"});
  REQUIRE(command_line.ok());
  CHECK(command_line->words() == Words{"b.png", "-c.png"});
  CHECK(absl::GetFlag(FLAGS_predict) == "a.png");
}

TEST_CASE("A tool has no flags but its own, which may be shared ones") {
  Program tool = TestProgram();
  tool.flags.flags.push_back({.name = "data_dir", .short_name = "dd"});
  tool.defaults = {{"data_dir", "/tmp/test_data"}};
  tool.shared_flags = false;
  CHECK(CommandLine::Parse(tool, {}).value().AllFlagsText().find("model_dir") == std::string::npos);
  CHECK(absl::GetFlag(FLAGS_data_dir) == "/tmp/test_data");
  CHECK(CommandLine::Parse(tool, {"-dd", "here"}).ok());
  CHECK(absl::GetFlag(FLAGS_data_dir) == "here");
  CHECK(absl::IsInvalidArgument(CommandLine::Parse(tool, {"--model_dir=x"}).status()));
}

TEST_CASE("Help and version requests") {
  using Request = CommandLine::Request;
  for (const char* word : {"--help", "-help", "-h", "--helpshort", "-?"})
    CHECK(Parse({word})->request() == Request::kHelp);
  CHECK(Parse({"--helpfull"})->request() == Request::kHelpFull);
  CHECK(Parse({"--version"})->request() == Request::kVersion);
  CHECK(Parse({"--batch_size=0", "--help", "nonsense", "--nonsense"})->request() == Request::kHelp);
  CHECK(Parse({"-bs=5"})->request() == Request::kRun);
}

TEST_CASE("A flag file sets flags where it stands") {
  const FlagFile file("a.flags",
                      "# a comment\n// another\n\n  --batch_size=64  \r\n--noshuffle\n--data_dir=/a b\n-te=3");
  const BaseConfig base = Base({"--batch_size=5", file.flag(), "-te", "7"});
  CHECK(base.batch_size == 64);
  CHECK_FALSE(base.shuffle);
  CHECK(base.data_dir == "/a b");
  CHECK(base.data_dir_given);
  CHECK(base.train_epochs == 7);
  CHECK(Base({"--flagfile", file.path(), "-bs=6"}).batch_size == 6);
  const FlagFile marked("marked.flags", "\xEF\xBB\xBF--batch_size=64\n");
  CHECK(Base({marked.flag()}).batch_size == 64);
}

TEST_CASE("Flag files nest but do not include themselves") {
  const FlagFile inner("inner.flags", "--batch_size=64\n");
  const FlagFile outer("outer.flags", "--train_epochs=2\n" + inner.flag() + "\n" + inner.flag() + "\n");
  CHECK(Base({outer.flag()}).batch_size == 64);
  // All of them are inputs, so that --clean does not delete them.
  CHECK(Parse({outer.flag(), "--data_dir=/a"}).value().InputPaths() ==
        Words{outer.path(), inner.path(), inner.path(), "/a"});

  const FlagFile self("self.flags", "");
  std::ofstream(self.path()) << "--clean\n" << self.flag() << "\n";
  CHECK_THAT(Error({self.flag()}), Contains("self.flags:2: ") && Contains("includes itself"));

  const FlagFile one("one.flags", "");
  const FlagFile two("two.flags", one.flag());
  std::ofstream(one.path()) << two.flag();
  CHECK_THAT(Error({one.flag()}),
             Contains("one.flags:1: ") && Contains("two.flags:1: ") && Contains("includes itself"));
}

TEST_CASE("Errors in flag files name file and line") {
  const FlagFile range("range.flags", "\n--batch_size=0\n");
  CHECK_THAT(Error({range.flag()}), Contains("range.flags:2: flag --batch_size=0: "));
  const FlagFile value("value.flags", "--batch_size=x\n");
  CHECK_THAT(Error({value.flag()}), Contains("value.flags:1: flag --batch_size=x: "));
  const FlagFile missing("missing.flags", "--batch_size\n5\n");
  CHECK_THAT(Error({missing.flag()}), Contains("missing.flags:2: '5' is not a flag"));
  const FlagFile unknown("unknown.flags", "#\n--batchsize=5\n");
  CHECK_THAT(Error({unknown.flag()}), Contains("unknown.flags:2: ") && Contains("did you mean --batch_size?"));
  const FlagFile blank("blank.flags", "#\n--batch_size 5\n");
  CHECK_THAT(Error({blank.flag()}),
             Contains("blank.flags:2: '--batch_size 5' needs = ") && Contains("did you mean --batch_size=5?"));
  const FlagFile blanks("blanks.flags", "--data_dir = /a b=c\n");
  CHECK_THAT(Error({blanks.flag()}), Contains("did you mean --data_dir=/a b=c?"));
  const FlagFile no_value("no_value.flags", "--batch_size\n");
  CHECK_THAT(Error({no_value.flag()}), Contains("no_value.flags:1: ") && Contains("needs a value"));
}

TEST_CASE("Files that are not flag files are refused") {
  CHECK_THAT(Error({"--flagfile=/nonexistent/x.flags"}), Contains("/nonexistent/x.flags") && Contains("No such file"));
  CHECK_THAT(Error({"--flagfile="}), Contains("--flagfile"));
  CHECK_THAT(Error({"--flagfile=."}), Contains("directory"));
  const FlagFile binary("binary.flags", std::string("--clean\0\n", 9));
  CHECK_THAT(Error({binary.flag()}), Contains("binary"));
  const FlagFile large("large.flags", std::string(2 << 20, '\n'));
  CHECK_THAT(Error({large.flag()}), Contains("larger than"));
  const FlagFile empty("empty.flags", "");
  CHECK(Parse({empty.flag()}).ok());
}

TEST_CASE("AllFlagsText read back gives the same flags and the same answers") {
  const auto first =
      Parse({"-bs", "7", "-st=0.1", "--layers=3,4", "--noshuffle", "-hk=", "--seed=18446744073709551615"});
  REQUIRE(first.ok());
  const std::string text = first->AllFlagsText();
  CHECK_THAT(text, Contains("--batch_size=7\n") && Contains("--stop_threshold=0.1\n") && Contains("--layers=3,4\n") &&
                       Contains("--shuffle=false\n") && Contains("--hooks=\n") && Contains("--num_gpus=\n") &&
                       Contains("--data_dir=/tmp/test_data\n") && Contains("--learning_rate=0.0001\n"));
  const FlagFile file("all.flags", text);
  const auto second = Parse({file.flag()});
  REQUIRE(second.ok());
  CHECK(second->AllFlagsText() == text);
  CHECK(second->given("batch_size"));
  CHECK_FALSE(second->given("data_dir"));
}

}  // namespace
}  // namespace official::flags
