#include "utils/train/background_saver.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "utils/logs/captured_log.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;

class BackgroundSaverTest {
 public:
  ~BackgroundSaverTest() { std::filesystem::remove_all(path_); }

  BackgroundSaver Saver(int64_t most_held) const {
    return BackgroundSaver(CheckpointSaver::Open(path_, /*keep_max=*/5).value(), most_held);
  }
  // Adds a tensor of `size` floats, all of them `value`, whose bytes count as long as it lives.
  void Add(const std::string& name, int64_t size, float value) {
    const auto bytes = static_cast<int64_t>(size * sizeof(float));
    content_.tensors[name] = {bytes, [this, size, value, bytes]() -> absl::StatusOr<Tensor> {
                                const Tensor tensor(DType::kFloat32, {size});
                                std::fill_n(tensor.data<float>(), size, value);
                                const int64_t now = live_bytes_ += bytes;
                                most_live_ = std::max(most_live_, now);
                                const auto owner = std::shared_ptr<void>(
                                    tensor.raw_data(), [this, tensor, bytes](void*) { live_bytes_ -= bytes; });
                                return Tensor(tensor.type(), tensor.raw_data(), owner);
                              }};
  }
  std::unique_ptr<BundleReader> Latest() const { return FindLatestCheckpoint(path_).value().reader; }

 protected:
  CheckpointContent content_;
  std::atomic<int64_t> live_bytes_ = 0;
  int64_t most_live_ = 0;

 private:
  const std::string path_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/model");
};

TEST_CASE_METHOD(BackgroundSaverTest, "However little may be held, everything is saved") {
  const int64_t most_held = GENERATE(1, 10'000, 1'000'000);
  for (int i = 0; i < 50; ++i) Add(absl::StrCat("v", i), 100 + i, static_cast<float>(i));
  content_.strings["name"] = "text";
  BackgroundSaver saver = Saver(most_held);
  REQUIRE(saver.Save(3, content_).ok());
  REQUIRE(saver.Wait().ok());
  CHECK(saver.finished_step() == 3);
  CHECK(most_live_ <= std::max<int64_t>(most_held, 149 * sizeof(float)));
  CHECK(live_bytes_ == 0);
  const auto saved = Latest();
  REQUIRE(saved != nullptr);
  for (int i = 0; i < 50; ++i) {
    const Tensor tensor = saved->Read(absl::StrCat("v", i)).value();
    REQUIRE(tensor.num_elements() == 100 + i);
    CHECK(std::all_of(tensor.data<float>(), tensor.data<float>() + 100 + i, [=](float x) { return x == i; }));
  }
  CHECK(saved->ReadStrings("name").value() == std::vector<std::string>{"text"});
}

TEST_CASE_METHOD(BackgroundSaverTest, "A tensor that is not finite is named, and its checkpoint not there") {
  for (int i = 0; i < 50; ++i)
    Add(absl::StrCat("v", i + 10), 100, i == 30 ? std::numeric_limits<float>::infinity() : 1);
  BackgroundSaver saver = Saver(/*most_held=*/1000);
  REQUIRE(saver.Save(7, content_).ok());
  const absl::Status status = saver.Wait();
  CHECK(absl::IsInternal(status));
  CHECK_THAT(std::string(status.message()), Contains("variable v40 is not finite at step 7: its element 0 is inf"));
  CHECK(live_bytes_ == 0);
  CHECK(Latest() == nullptr);
}

TEST_CASE_METHOD(BackgroundSaverTest, "A tensor that cannot be read ends the save with its error") {
  Add("a", 100, 1);
  Add("c", 100, 1);
  content_.tensors["b"] = {4, []() -> absl::StatusOr<Tensor> { return absl::UnavailableError("device lost"); }};
  BackgroundSaver saver = Saver(/*most_held=*/1000);
  CHECK(saver.Save(1, content_) == absl::UnavailableError("device lost"));
  CHECK(saver.Wait() == absl::UnavailableError("device lost"));
  CHECK(Latest() == nullptr);
}

// Threads get stacks of more than the address space while it lives: none can start.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    REQUIRE(pthread_attr_setstacksize(&huge, size_t{1} << 48) == 0);
    REQUIRE(pthread_setattr_default_np(&huge) == 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_CASE_METHOD(BackgroundSaverTest, "Where no thread can start, the caller writes") {
  for (int i = 0; i < 5; ++i) Add(absl::StrCat("v", i), 100, static_cast<float>(i));
  BackgroundSaver saver = Saver(/*most_held=*/1);
  const NoThreads no_threads;
  REQUIRE(saver.Save(3, content_).ok());
  CHECK(saver.finished_step() == 3);
  CHECK(saver.Wait().ok());
  CHECK(most_live_ == 100 * sizeof(float));
  CHECK(Latest()->Read("v4").value().data<float>()[99] == 4);
  Add("v5", 100, std::numeric_limits<float>::infinity());
  CHECK_THAT(std::string(saver.Save(4, content_).message()), Contains("variable v5 is not finite at step 4"));
  CHECK_FALSE(saver.Wait().ok());
  CHECK(saver.finished_step() == 3);
}

TEST_CASE_METHOD(BackgroundSaverTest, "An exception while saving is the error of the save") {
  const bool has_threads = GENERATE(true, false);
  std::optional<NoThreads> no_threads;
  if (!has_threads) no_threads.emplace();
  Add("a", 100, 1);
  content_.tensors["b"] = {4, []() -> absl::StatusOr<Tensor> { throw std::runtime_error("no such device"); }};
  BackgroundSaver saver = Saver(/*most_held=*/1000);
  const absl::Status wanted = absl::InternalError("the checkpoint of step 1 was not saved: no such device");
  CHECK(saver.Save(1, content_) == wanted);
  CHECK(saver.Wait() == wanted);
  CHECK(Latest() == nullptr);
}

// No file gets longer than this while it lives.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit small = {bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  }
  ~SmallFiles() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST_CASE_METHOD(BackgroundSaverTest, "A save that the storage fails is tried again by the next, once") {
  Add("a", 100'000, 1);
  logs::CapturedLog log(logs::LogFormat::kSimple);
  BackgroundSaver saver = Saver(/*most_held=*/1'000'000);
  std::optional<NoThreads> no_threads;
  if (GENERATE(false, true)) no_threads.emplace();
  std::optional<SmallFiles> full(200'000);
  CHECK(saver.Save(1, content_).ok());
  CHECK_THAT(std::string(saver.Wait().message()), Contains("the checkpoint of step 1, which needs 400000 bytes"));
  CHECK_THAT(log.Text(), Contains("the checkpoint of step 1, which needs 400000 bytes, was not saved: ") &&
                             Contains("; the next save, if the run continues, tries again"));
  CHECK_FALSE(saver.finished_step());
  CHECK(saver.tries_again());
  SECTION("there is room again") {
    full.reset();
    CHECK(saver.Save(2, content_).ok());
    CHECK(saver.Wait().ok());
    CHECK(saver.finished_step() == 2);
    CHECK_FALSE(saver.tries_again());
    full.emplace(200'000);
    CHECK(saver.Save(3, content_).ok());
    CHECK(absl::IsAborted(saver.Wait()));
    CHECK(saver.finished_step() == 2);
    CHECK(saver.tries_again());
  }
  SECTION("there is none yet") {
    const absl::Status second = saver.Save(2, content_);
    CHECK(absl::IsAborted(second));
    CHECK_THAT(std::string(second.message()), Contains("the checkpoint of step 2, which needs 400000 bytes"));
    CHECK(saver.Wait() == second);
    CHECK_FALSE(saver.tries_again());
  }
  SECTION("a tensor is not finite") {
    full.reset();
    Add("a", 100, std::numeric_limits<float>::infinity());
    CHECK(absl::IsInternal(saver.Save(2, content_)));
    CHECK_FALSE(saver.tries_again());
    Add("a", 100, 1);
    CHECK(absl::IsInternal(saver.Save(3, content_)));
    CHECK(Latest() == nullptr);
  }
}

TEST_CASE_METHOD(BackgroundSaverTest, "Where writing fails, reading does not wait for it") {
  for (int i = 0; i < 50; ++i) Add(absl::StrCat("v", i), 10'000, 1);
  BackgroundSaver saver = Saver(/*most_held=*/100'000);
  std::optional<SmallFiles> full(200'000);
  CHECK(saver.Save(1, content_).ok());
  const absl::Status status = saver.Wait();
  full.reset();
  CHECK(absl::IsAborted(status));
  CHECK_THAT(std::string(status.message()), Contains("the checkpoint of step 1, which needs 2000000 bytes"));
  CHECK(live_bytes_ == 0);
}

}  // namespace
}  // namespace official::train
