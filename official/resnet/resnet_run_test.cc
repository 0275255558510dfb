// The whole of resnet_main but for its command line, on small data sets.

#include "official/resnet/resnet_run.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "official/resnet/cifar10/dataset.h"
#include "utils/compute/core/random.h"
#include "utils/data/huge_image.h"
#include "utils/data/jpeg_encoder.h"
#include "utils/data/png_encoder.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/run/small_run.h"

namespace official::resnet {
namespace {

using Catch::Matchers::Contains;
using run::NewDirectory;

// Records of CIFAR-10's binary version: a bright bar whose row is the label's, in noise.
void WriteImages(const std::string& directory, const std::string& file, int n) {
  std::filesystem::create_directories(directory);
  std::ofstream out(directory + "/" + file, std::ios::binary);
  for (int i = 0; i < n; ++i) {
    const int label = i % 10;
    out.put(static_cast<char>(label));
    for (int p = 0; p < 3 * 32 * 32; ++p) {
      const bool bar = p % 1024 / 32 / 3 == label;
      const uint32_t noise = compute::Philox(7, i, p)[0] % 64;
      out.put(static_cast<char>(bar ? 255 - noise : noise));
    }
  }
}

ResnetConfig SmallConfig(int images_of_each_file, int test_images = 30) {
  ResnetConfig config{run::SmallRun(/*batch_size=*/16),
                      {.dataset = DatasetName::kCifar10,
                       .size = 8,
                       .version = 2,
                       .weight_decay = 2e-4,
                       .schedule = {.boundary_epochs = {}, .factors = {1}}},
                      /*fast_jpeg=*/false,
                      /*fine_tune=*/std::nullopt,
                      /*predict=*/{},
                      /*top_k=*/std::nullopt};
  config.train.log_every_n_steps = 1;
  config.train.winograd = false;  // two runs may choose differently
  config.base.augment = true;
  const std::string directory = absl::StrCat(config.base.data_dir, "/", kCifar10Folder);
  for (int i = 1; i <= 5; ++i) WriteImages(directory, absl::StrCat("data_batch_", i, ".bin"), images_of_each_file);
  WriteImages(directory, "test_batch.bin", test_images);
  return config;
}

absl::Status RunStatus(const ResnetConfig& config) {
  std::ostringstream out;
  return RunResnet(config, out);
}

std::string Run(const ResnetConfig& config) {
  std::ostringstream out;
  const absl::Status status = RunResnet(config, out);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return out.str();
}

ResnetConfig InNewModelDir(ResnetConfig config) {
  config.train.model_dir = NewDirectory("model");
  return config;
}

void CheckSameLosses(const run::Config& a, const run::Config& b, double tolerance) {
  const std::vector<double> want = run::Losses(a), losses = run::Losses(b);
  REQUIRE(losses.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(losses[i] - want[i]) <= tolerance * std::max(1.0, std::abs(want[i])));
  }
}

TEST_CASE("Training on CIFAR-10 learns, evaluates and leaves TensorFlow's files") {
  ResnetConfig config = SmallConfig(20);
  config.model.version = GENERATE(1, 2);
  config.base.train_epochs = 12;
  config.base.epochs_between_evals = 6;
  config.base.augment = false;
  const std::string out = Run(config);
  const std::vector<std::string> evaluations = run::EvaluationsIn(out);
  REQUIRE(evaluations.size() == 2);
  CHECK_THAT(out, Contains("\"global_step\": 38"));  // 600 images in batches of 16 that go on into the next epoch
  CHECK_THAT(out, Contains("\"global_step\": 76"));
  const std::vector<double> losses = run::Losses(config);
  // Of the last step; evaluations still see moving averages that began at 0 and 1.
  CHECK(losses[losses.size() - 2] < 0.5 * losses.front());
  const auto samples = run::LastSamples(config);
  REQUIRE(samples.size() == 17);  // of two batches
  const char* const classes[] = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse"};
  for (size_t i = 0; i < 8; ++i) CHECK(samples[1 + i][0] == classes[i]);
  const auto checkpoint = run::Checkpoint(config);
  for (const char* name : {"resnet_model/conv2d/kernel", "resnet_model/batch_normalization/moving_variance",
                           "resnet_model/dense/bias/Momentum"}) {
    CHECK(checkpoint->Find(name).has_value());
  }

  // Evaluating once more gives the same.
  ResnetConfig evaluate = config;
  evaluate.base.eval_only = true;
  const std::string again = Run(evaluate);
  CHECK(run::EvaluationsIn(again) == std::vector<std::string>{evaluations[1]});

  // Without the training set, too.
  const std::string directory = absl::StrCat(config.base.data_dir, "/", kCifar10Folder);
  for (int i = 1; i <= 5; ++i) std::filesystem::remove(absl::StrCat(directory, "/data_batch_", i, ".bin"));
  CHECK(run::EvaluationsIn(Run(evaluate)) == std::vector<std::string>{evaluations[1]});
  evaluate.base.overfit_batches = 1;  // which evaluates on it
  CHECK_THAT(std::string(RunStatus(evaluate).message()), Contains("data_batch_1.bin"));
  evaluate.base.overfit_batches.reset();
  evaluate.train.model_dir = NewDirectory("model");
  CHECK(absl::IsNotFound(RunStatus(evaluate)));
}

TEST_CASE("A run whose images have changed says so, and ends") {
  ResnetConfig config = SmallConfig(9);  // 45 images
  config.base.train_epochs = 2;
  config.performance.max_train_steps = 2;
  Run(config);
  config.performance.max_train_steps.reset();
  const int each = GENERATE(4, 8);
  const std::string directory = absl::StrCat(config.base.data_dir, "/", kCifar10Folder);
  for (int i = 1; i <= 5; ++i) WriteImages(directory, absl::StrCat("data_batch_", i, ".bin"), each);
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const std::string out = Run(config);
  CHECK_THAT(log.Text(), Contains("the training data have changed since the checkpoint was written: they were 45 "
                                  "examples, digest ") &&
                             Contains(absl::StrCat(", and are ", 5 * each, " examples, digest ")));
  CHECK(run::EvaluationsIn(out).size() == (each == 4 ? 1 : 2));
}

TEST_CASE("A run in parts, stopped in the middle of an epoch, ends with the bits of one run") {
  ResnetConfig whole = SmallConfig(9);
  whole.base.train_epochs = 3;
  whole.base.epochs_between_evals = 2;
  whole.performance.num_parallel_calls = 2;
  whole.train.winograd = true;
  const ResnetConfig parts = InNewModelDir(whole);
  Run(whole);
  // What one run chose by timing another may not; a run that goes on keeps to it.
  const std::string choices = files::ReadFile(whole.train.model_dir + "/algorithms.txt", 1 << 20).value_or("");
  REQUIRE(files::MakeDirectories(parts.train.model_dir).ok());
  REQUIRE(files::WriteFileAtomically(parts.train.model_dir + "/algorithms.txt", choices).ok());
  for (const int steps : {1, 4, 7}) {
    ResnetConfig part = parts;
    part.performance.max_train_steps = steps;
    Run(part);
  }
  Run(parts);
  run::CheckSameBits(whole, parts);
}

TEST_CASE("--overfit_batches ends each epoch after its batches, also in two parts to the bit") {
  ResnetConfig whole = SmallConfig(9);  // 45 images: batches of 16 that would go on into the next epoch
  whole.base.overfit_batches = 2;
  whole.base.train_epochs = 3;
  whole.base.epochs_between_evals = 3;
  const ResnetConfig parts = InNewModelDir(whole);
  CHECK_THAT(Run(whole), Contains(R"("global_step": 6, "steps": 6,)"));
  for (const int steps : {1, 4}) {
    ResnetConfig part = parts;
    part.performance.max_train_steps = steps;
    Run(part);
  }
  Run(parts);
  run::CheckSameBits(whole, parts);
}

TEST_CASE("--overfit_batches takes batches of the size that the program has chosen") {
  ResnetConfig config = SmallConfig(9);  // 45 images
  config.base.batch_size = 0;
  config.base.overfit_batches = 2;
  config.base.train_epochs = 3;
  config.base.epochs_between_evals = 3;
  config.rehearsal = GENERATE(run::Rehearsal::kNone, run::Rehearsal::kPrintSchedule);
  std::string out;
  int batch_size = 0;
  {
    logs::CapturedLog log(logs::LogFormat::kJson);
    out = Run(config);
    const std::string text = log.Text();
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const nlohmann::json event = nlohmann::json::parse(line.begin(), line.end());
      if (event.at("event") == "batch_size") batch_size = event.at("batch_size");
    }
  }
  REQUIRE(batch_size > 0);
  const int steps = 3 * (batch_size < 45 ? 2 : 1);
  const std::vector<std::string> lines = absl::StrSplit(out, '\n', absl::SkipEmpty());
  const int last = nlohmann::json::parse(lines.back())["global_step"];
  CHECK(last == (config.rehearsal == run::Rehearsal::kNone ? steps : steps - 1));
}

TEST_CASE("A run that continues with another batch size warns that its schedule counts in the new steps") {
  ResnetConfig config = SmallConfig(9);
  config.model.schedule.schedule = GENERATE(LrSchedule::kPiecewise, LrSchedule::kCosine, LrSchedule::kConstant);
  config.base.train_epochs = 2;
  config.performance.max_train_steps = 1;
  Run(config);
  config.performance.max_train_steps = 2;
  const auto log_of = [&config](int batch_size) {
    config.base.batch_size = batch_size;
    logs::CapturedLog log(logs::LogFormat::kSimple);
    Run(config);
    return log.Text();
  };
  const std::string warning = "--batch_size=15, but this run has trained with 16: the learning rate schedule counts";
  CHECK_THAT(log_of(16), !Contains("learning rate schedule"));
  config.performance.max_train_steps = 3;
  CHECK(absl::StrContains(log_of(15), warning) == (config.model.schedule.schedule != LrSchedule::kConstant));
}

// By hand: 45 images in batches of 16 are 3 steps in each of 8 epochs, as many as the run makes.
TEST_CASE("A rate that falls to 0 gets there after the last step, also where an epoch ends with a partial batch") {
  ResnetConfig config = SmallConfig(9);
  config.base.train_epochs = 8;
  config.model.schedule.schedule = LrSchedule::kLinear;
  config.rehearsal = run::Rehearsal::kPrintSchedule;
  const std::string out = Run(config);
  const std::vector<std::string> lines = absl::StrSplit(out, '\n', absl::SkipEmpty());
  const nlohmann::json first = nlohmann::json::parse(lines.front()), last = nlohmann::json::parse(lines.back());
  CHECK(last["global_step"] == 23);
  CHECK(last["epoch"].get<double>() == Approx(23.0 / 3));
  CHECK(last["learning_rate"].get<double>() == Approx(first["learning_rate"].get<double>() / 24));
}

// By hand: 45 images are 6 batches of 8, of which a step takes one of each worker, or as many as the flag says.
TEST_CASE("The schedule of synchronous workers counts the batches that a step takes") {
  setenv("TF_CONFIG", R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]},
                          "task": {"type": "chief", "index": 0}})",
         1);
  const absl::Cleanup alone = [] { unsetenv("TF_CONFIG"); };
  ResnetConfig config = SmallConfig(9);
  config.base.batch_size = 8;
  config.base.train_epochs = 8;
  config.model.schedule = {.boundary_epochs = {4}, .factors = {1, 0.1}};
  config.rehearsal = run::Rehearsal::kPrintSchedule;
  int steps_per_epoch = 6;
  SECTION("asynchronous") {}
  SECTION("synchronous") {
    config.cluster.sync_replicas = true;
    steps_per_epoch = 3;
  }
  SECTION("with three gradients in a step") {
    config.cluster.sync_replicas = true;
    config.cluster.replicas_to_aggregate = 3;
    steps_per_epoch = 2;
  }
  const std::string out = Run(config);
  const std::vector<std::string> lines = absl::StrSplit(out, '\n', absl::SkipEmpty());
  CHECK(nlohmann::json::parse(lines.back())["global_step"] == 8 * steps_per_epoch - 1);
  const double base = nlohmann::json::parse(lines.front())["learning_rate"];
  for (const std::string& line : lines) {
    const nlohmann::json point = nlohmann::json::parse(line);
    CAPTURE(line);
    // 4 epochs of 45 / 8 batches are 22.5 batches, in steps of 1, 2 or 3.
    const bool is_late = point["global_step"].get<double>() > std::floor(22.5 * steps_per_epoch / 6);
    CHECK(point["learning_rate"].get<double>() == Approx(is_late ? 0.1 * base : base));
  }
}

TEST_CASE("Two replicas with synchronized batch normalization equal one device") {
  ResnetConfig one = SmallConfig(9);  // 45 images: the last batch of an epoch has 13
  one.model.version = GENERATE(1, 2);
  one.model.schedule.base_learning_rate = 0.02;
  one.model.sync_batch_norm = true;
  SECTION("with a partial batch at the end") {}
  SECTION("with a replica that has no example in the last batch") { one.base.batch_size = 44; }
  ResnetConfig two = InNewModelDir(one);
  two.performance.num_cpu_devices = 2;
  Run(one);
  Run(two);
  CheckSameLosses(one, two, 1e-5);
  const auto a = run::Checkpoint(one), b = run::Checkpoint(two);
  for (const char* name :
       {"resnet_model/batch_normalization_3/moving_mean", "resnet_model/batch_normalization_3/moving_variance"}) {
    const compute::Tensor x = a->Read(name).value(), y = b->Read(name).value();
    for (int64_t i = 0; i < x.num_elements(); ++i) CHECK(x.flat<float>()[i] == Approx(y.flat<float>()[i]).margin(1e-5));
  }
}

TEST_CASE("Two replicas keep the same weights and average their moving averages") {
  ResnetConfig config = SmallConfig(9);
  config.performance.num_cpu_devices = 2;
  config.train.check_replicas_steps = 1;
  Run(config);  // fails if they come apart
  const ResnetConfig alone = InNewModelDir(config);
  ResnetConfig one = alone;
  one.performance.num_cpu_devices = 1;
  one.performance.max_train_steps = 1;
  ResnetConfig two = InNewModelDir(config);
  two.performance.max_train_steps = 1;
  Run(one);
  Run(two);
  // The mean of the two halves' means is the whole batch's; the first normalization of version 2 sees equal weights.
  const char* name = "resnet_model/batch_normalization/moving_mean";
  const compute::Tensor x = run::Checkpoint(one)->Read(name).value(), y = run::Checkpoint(two)->Read(name).value();
  for (int64_t i = 0; i < x.num_elements(); ++i) CHECK(x.flat<float>()[i] == Approx(y.flat<float>()[i]).margin(1e-7));
}

TEST_CASE("Fine-tuning begins with the variables that fit, and only a new run does") {
  ResnetConfig first = SmallConfig(9);
  Run(first);
  ResnetConfig second = InNewModelDir(first);
  second.fine_tune = first.train.model_dir;
  second.model.schedule.base_learning_rate = 1e-30;  // variables stay as they begin
  SECTION("all of them") {
    Run(second);
    const auto a = run::Checkpoint(first), b = run::Checkpoint(second);
    // Named by its files, or by the one that lists the checkpoints, it is the same.
    for (const char* file : {"checkpoint", "model.ckpt-3", "model.ckpt-3.index", "model.ckpt-3.data-00000-of-00001"}) {
      ResnetConfig third = InNewModelDir(second);
      third.fine_tune = absl::StrCat(first.train.model_dir, "/", file);
      third.performance.max_train_steps = 1;
      CAPTURE(file);
      CHECK(RunStatus(third).ToString() == "OK");
    }
    const char* name = "resnet_model/conv2d_3/kernel";
    const compute::Tensor x = a->Read(name).value(), y = b->Read(name).value();
    for (int64_t i = 0; i < x.num_elements(); ++i) CHECK(x.flat<float>()[i] == y.flat<float>()[i]);
    CHECK(b->Read("global_step")->scalar<int64_t>() == 3);
    // Another start has nothing to take.
    second.fine_tune = NewDirectory("gone");
    Run(second);
  }
  SECTION("a network of another depth has some of them") {
    second.model.size = 14;
    Run(second);
    CHECK(run::Checkpoint(second)->Find("resnet_model/conv2d_15/kernel").has_value());
    // But it is no continuation of the first.
    second.train.model_dir = first.train.model_dir;
    second.base.train_epochs = 2;
    CHECK_THAT(std::string(RunStatus(second).message()), Contains("--fine_tune"));
  }
  SECTION("no checkpoint there") {
    second.fine_tune = NewDirectory("gone");
    CHECK(absl::IsNotFound(RunStatus(second)));
  }
}

TEST_CASE("Synthetic images, in every type") {
  ResnetConfig config = SmallConfig(1);
  config.performance.use_synthetic_data = true;
  config.performance.max_train_steps = 2;
  config.train.dtype = GENERATE(from_range(compute::StorageTypes()));
  CHECK_THAT(Run(config), Contains("\"global_step\": 2") && Contains("\"accuracy\": 1.0"));
}

std::string WriteFile(const std::string& name, const std::string& bytes) {
  const std::string path = NewDirectory(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string WritePng(int64_t size) {
  const compute::Tensor image(compute::DType::kUInt8, {size, size, 3});
  for (int64_t i = 0; i < image.num_elements(); ++i) image.data<uint8_t>()[i] = static_cast<uint8_t>(i * i / 97);
  return WriteFile("image.png", data::EncodePng(image));
}

std::string WriteLabels(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) absl::StrAppend(&text, "name ", i, "\n");
  return WriteFile("labels.txt", text);
}

// A trained network's configuration, to predict with.
ResnetConfig Trained() {
  ResnetConfig config = SmallConfig(4);
  config.performance.max_train_steps = 1;
  config.base.export_dir = NewDirectory("export");
  Run(config);
  CHECK(files::ListDirectory(*config.base.export_dir)->size() == 1);
  return config;
}

TEST_CASE("Image files are classified, the most likely class first") {
  static const ResnetConfig trained = Trained();
  ResnetConfig config = trained;
  const std::string png = WritePng(32);
  const std::string jpeg = WriteFile("image.jpg", data::SmoothJpeg({.height = 40, .width = 70}));
  config.predict = {png, jpeg};
  SECTION("as JSON, an object a line") {
    config.top_k = 10;
    const std::string out = Run(config);
    const std::vector<std::string> lines = absl::StrSplit(out, '\n', absl::SkipEmpty());
    REQUIRE(lines.size() == 2);
    for (size_t i = 0; i < lines.size(); ++i) {
      const nlohmann::json line = nlohmann::json::parse(lines[i]);
      CHECK(line["file"] == config.predict[i]);
      REQUIRE(line["classes"].size() == 10);
      double sum = 0, last = 1;
      for (const nlohmann::json& entry : line["classes"]) {
        CHECK(entry["probability"] <= last);
        last = entry["probability"];
        sum += last;
        if (entry["class"] == 3) CHECK(entry["name"] == "cat");
        if (entry["class"] == 9) CHECK(entry["name"] == "truck");
      }
      CHECK(sum == Approx(1));
    }
    CHECK(nlohmann::json::parse(lines[0])["classes"] != nlohmann::json::parse(lines[1])["classes"]);
  }
  SECTION("as text, with names from a file") {
    config.base.output = "text";
    config.label_file = WriteLabels(10);
    config.top_k = 3;
    const std::string out = Run(config);
    CHECK(std::count(out.begin(), out.end(), '\n') == 2 * (1 + 3));
    CHECK_THAT(out, Contains(png + ":\n  0.") && Contains(jpeg + ":\n  0.") && Contains("  name "));
  }
  SECTION("whatever the size of the image") {
    config.predict = {WritePng(1), WritePng(200)};
    CHECK_THAT(Run(config), Contains(config.predict[1]));
  }
}

TEST_CASE("Of several files the bad ones are named, and the others classified") {
  static const ResnetConfig trained = Trained();
  ResnetConfig config = trained;
  const std::string first = WritePng(32), last = WritePng(40), notes = WriteFile("notes.txt", "not a picture");
  config.predict = {first, "/nowhere/cat.jpg", notes, last};
  std::ostringstream out;
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const absl::Status status = RunResnet(config, out);
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message() == "2 of 4 files are bad; the log names them");
  CHECK_THAT(log.Text(), Contains("/nowhere/cat.jpg") && Contains(notes + ": "));
  const std::vector<std::string> lines = absl::StrSplit(out.str(), '\n', absl::SkipEmpty());
  REQUIRE(lines.size() == 2);
  CHECK(nlohmann::json::parse(lines[0])["file"] == first);
  CHECK(nlohmann::json::parse(lines[1])["file"] == last);
}

TEST_CASE("What is missing for a prediction is named in one line") {
  static const ResnetConfig trained = Trained();
  ResnetConfig config = trained;
  config.predict = {WritePng(32)};
  const auto check = [&](absl::StatusCode code, const std::vector<std::string>& words) {
    const absl::Status status = RunStatus(config);
    CHECK(status.code() == code);
    for (const std::string& word : words) CHECK_THAT(std::string(status.message()), Contains(word));
    CHECK_THAT(std::string(status.message()), !Contains("\n"));
  };
  SECTION("a checkpoint") {
    config.train.model_dir = NewDirectory("model");
    check(absl::StatusCode::kNotFound, {"no checkpoint", config.train.model_dir});
  }
  SECTION("a file") {
    config.predict = {"/nowhere/cat.jpg"};
    check(absl::StatusCode::kNotFound, {"/nowhere/cat.jpg"});
  }
  SECTION("an image") {
    config.predict = {WriteFile("notes.txt", "not a picture")};
    check(absl::StatusCode::kDataLoss, {config.predict[0], "neither JPEG nor PNG"});
  }
  SECTION("an image of a size that can be") {
    for (const std::string& bytes : {data::HugePng(), data::HugeJpeg()}) {
      config.predict = {WriteFile("huge", bytes)};
      check(absl::StatusCode::kDataLoss, {config.predict[0], "65500 x 65500 pixels", "limit of"});
    }
  }
  SECTION("a whole image") {
    const std::string jpeg = data::SmoothJpeg({.height = 90, .width = 90});
    config.predict = {WriteFile("cut.jpg", jpeg.substr(0, jpeg.size() - 40))};
    check(absl::StatusCode::kDataLoss, {config.predict[0]});
  }
  SECTION("the label file") {
    config.label_file = "/nowhere/labels.txt";
    check(absl::StatusCode::kNotFound, {config.label_file});
  }
  SECTION("lines of the label file") {
    config.label_file = WriteLabels(9);
    check(absl::StatusCode::kInvalidArgument, {config.label_file, "names 9 classes", "the network has 10"});
  }
  SECTION("so many classes") {
    config.top_k = 11;
    check(absl::StatusCode::kInvalidArgument, {"--top_k=11 is more than the 10 classes"});
  }
}

TEST_CASE("Missing data says how to get it and how to do without") {
  ResnetConfig config = SmallConfig(1);
  config.base.data_dir = NewDirectory("nothing");
  const absl::Status status = RunStatus(config);
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(std::string(status.message()), Contains("--use_synthetic_data"));
}

}  // namespace
}  // namespace official::resnet
