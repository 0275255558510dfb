#include "utils/misc/model_helpers.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/status/status.h"

namespace official::misc {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

// The pairs are those of TensorFlow's model_helpers_test.
TEST_CASE("PastStopThreshold is reached at the threshold") {
  for (const auto& [threshold, metric] :
       std::vector<std::pair<double, double>>{{.54, 1}, {54, 100}, {-.54, 0}, {0, 0}, {.54, .54}, {0, 1.5}}) {
    CHECK(PastStopThreshold(threshold, metric));
  }
  // A float, as metrics are, may be below the double of the same digits.
  CHECK(0.95 > double{0.95f});
  CHECK(PastStopThreshold(0.95, double{0.95f}));
  CHECK_FALSE(PastStopThreshold(0.95, double{std::nextafter(0.95f, 0.0f)}));
  CHECK_FALSE(PastStopThreshold(.54, .1));
  CHECK_FALSE(PastStopThreshold(-.54, -1.5));
  CHECK_FALSE(PastStopThreshold(std::nullopt, -1.5));
  CHECK_FALSE(PastStopThreshold(std::nullopt, 1.5));
  CHECK_FALSE(PastStopThreshold(0.5, std::nan("")));
}

// A directory of its own for one test case.
class Scratch {
 public:
  Scratch() {
    const char* parent = std::getenv("TEST_TMPDIR");
    root_ = fs::path(parent == nullptr ? "/tmp" : parent) / ("clean." + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "model");
  }
  ~Scratch() { fs::remove_all(root_); }

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  void Write(const std::string& name) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << "x";
  }

 private:
  fs::path root_;
};

void CheckRefused(const absl::StatusOr<bool>& result, const std::string& why) {
  CHECK(absl::IsInvalidArgument(result.status()));
  CHECK_THAT(std::string(result.status().message()), Contains("--clean") && Contains(why));
}

TEST_CASE("ApplyClean empties a model_dir and leaves the directory") {
  Scratch scratch;
  scratch.Write("model/checkpoint");
  scratch.Write("model/model.ckpt-10.index");
  scratch.Write("model/eval/events.out.tfevents.1");
  CHECK(CheckClean(scratch.path("model"), {}).ok());
  CHECK(ApplyClean(scratch.path("model"), {}).value() == true);
  CHECK(fs::exists(scratch.path("model")));
  CHECK(fs::is_empty(scratch.path("model")));
  CHECK(ApplyClean(scratch.path("model"), {}).value() == false);
}

TEST_CASE("ApplyClean empties what a run leaves that ends before its first checkpoint") {
  const std::string file = GENERATE("records-train.index", "algorithms.txt", "flags.txt");
  Scratch scratch;
  scratch.Write("model/" + file);
  scratch.Write("model/labels.txt");
  CHECK(ApplyClean(scratch.path("model"), {}).value() == true);
  CHECK(fs::is_empty(scratch.path("model")));
}

TEST_CASE("ApplyClean does nothing where there is nothing") {
  Scratch scratch;
  CHECK(ApplyClean(scratch.path("absent"), {}).value() == false);
  CHECK_FALSE(fs::exists(scratch.path("absent")));
}

TEST_CASE("ApplyClean removes links but not what they point to") {
  Scratch scratch;
  scratch.Write("elsewhere/precious");
  scratch.Write("model/checkpoint");
  fs::create_directory_symlink(scratch.path("elsewhere"), scratch.path("model/link"));
  fs::create_directory_symlink(scratch.path("model"), scratch.path("model_link"));
  CHECK(ApplyClean(scratch.path("model_link"), {}).value() == true);
  CHECK(fs::exists(scratch.path("elsewhere/precious")));
  CHECK(fs::is_symlink(scratch.path("model_link")));
  CHECK(fs::is_empty(scratch.path("model")));
}

TEST_CASE("ApplyClean refuses a directory that is not a model_dir") {
  Scratch scratch;
  scratch.Write("model/thesis.tex");
  CheckRefused(ApplyClean(scratch.path("model"), {}), "thesis.tex");
  CHECK(fs::exists(scratch.path("model/thesis.tex")));
  CheckRefused(ApplyClean(scratch.path("model/thesis.tex"), {}), "not a directory");
  scratch.Write("data/labels.txt");
  scratch.Write("data/train-00000-of-00001");
  CHECK(CheckClean(scratch.path("model"), {}) == ApplyClean(scratch.path("model"), {}).status());
  CheckRefused(ApplyClean(scratch.path("data"), {}), "nothing there looks like a training run");
}

TEST_CASE("ApplyClean refuses the system's, the user's and the run's other directories") {
  Scratch scratch;
  scratch.Write("model/checkpoint");
  scratch.Write("model/data/train-images-idx3-ubyte");
  CheckRefused(ApplyClean("/", {}), "root of the file system");
  fs::permissions(scratch.path("model"), fs::perms::sticky_bit, fs::perm_options::add);
  CheckRefused(ApplyClean(scratch.path("model/data/../."), {}), "shared by all users");
  fs::permissions(scratch.path("model"), fs::perms::sticky_bit, fs::perm_options::remove);
  CheckRefused(ApplyClean(fs::current_path().string(), {}), "working directory");
  CheckRefused(ApplyClean(scratch.path("model"), {scratch.path("model")}), "this run uses too");
  CheckRefused(ApplyClean(scratch.path("model"), {scratch.path("model/data")}), "this run uses too");
  scratch.Write("model/model.ckpt-1.index");
  CheckRefused(ApplyClean(scratch.path("model"), {scratch.path("model/model.ckpt-1")}), "this run uses too");

  const char* home = std::getenv("HOME");
  const std::string old_home = home == nullptr ? "" : home;
  setenv("HOME", scratch.path("model/data").c_str(), 1);
  CheckRefused(ApplyClean(scratch.path("model"), {}), "home directory");
  setenv("HOME", old_home.c_str(), 1);

  CHECK(fs::exists(scratch.path("model/checkpoint")));
  // A sibling whose name begins alike is not inside.
  CHECK(ApplyClean(scratch.path("model"), {scratch.path("model2"), scratch.path("absent")}).value() == true);
}

TEST_CASE("ApplyClean deletes what makes a checkpoint first, and what makes a model_dir last") {
  if (geteuid() == 0) return;  // nothing is forbidden to root
  Scratch scratch;
  for (const char* name : {"checkpoint", "model.ckpt-9.index", "model.ckpt-10.index",
                           "model.ckpt-10.data-00000-of-00001", "metric.log", "eval/evaluated_step"}) {
    scratch.Write(std::string("model/") + name);
  }
  fs::permissions(scratch.path("model/eval"), fs::perms::owner_read | fs::perms::owner_exec);
  const absl::Status status = ApplyClean(scratch.path("model"), {}).status();
  fs::permissions(scratch.path("model/eval"), fs::perms::owner_all);
  CHECK(absl::IsPermissionDenied(status));
  for (const char* name : {"checkpoint", "model.ckpt-9.index", "model.ckpt-10.index"}) {
    CHECK_FALSE(fs::exists(scratch.path(std::string("model/") + name)));
  }
  CHECK(fs::exists(scratch.path("model/model.ckpt-10.data-00000-of-00001")));
  CHECK(fs::exists(scratch.path("model/metric.log")));
  CHECK(ApplyClean(scratch.path("model"), {}).value() == true);
  CHECK(fs::is_empty(scratch.path("model")));
}

TEST_CASE("ApplyClean tells what it could not delete") {
  if (geteuid() == 0) return;  // nothing is forbidden to root
  Scratch scratch;
  scratch.Write("model/checkpoint");
  fs::permissions(scratch.path("model"), fs::perms::owner_read | fs::perms::owner_exec);
  const absl::Status status = ApplyClean(scratch.path("model"), {}).status();
  fs::permissions(scratch.path("model"), fs::perms::owner_all);
  CHECK(absl::IsPermissionDenied(status));
  CHECK_THAT(std::string(status.message()), Contains("checkpoint"));
}

}  // namespace
}  // namespace official::misc
