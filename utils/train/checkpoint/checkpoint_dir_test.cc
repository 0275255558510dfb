#include "utils/train/checkpoint/checkpoint_dir.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/train/checkpoint/linked_checkpoints.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::Tensor;
using Names = std::vector<std::string>;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// A model directory and what is done in it. Each checkpoint holds the step it was saved at, as tensor `global_step`.
struct ModelDir {
  ModelDir() {
    static int counter = 0;
    const char* directory = std::getenv("TEST_TMPDIR");
    path = absl::StrCat(directory ? directory : "/tmp", "/model-", ++counter);
    std::filesystem::remove_all(path);
  }

  std::unique_ptr<CheckpointSaver> Open(int keep_max = 5) const {
    return CheckpointSaver::Open(path, keep_max).value();
  }
  void Save(const Names& steps, int keep_max = 5) const {
    const auto saver = Open(keep_max);
    for (const std::string& step : steps) REQUIRE(SaveStep(*saver, std::stoll(step)).ok());
  }
  static absl::Status SaveStep(CheckpointSaver& saver, int64_t step) {
    return saver.Save(step, {{"global_step", Tensor::Scalar<int64_t>(step)}});
  }

  std::string File(const std::string& name) const { return path + "/" + name; }
  void Write(const std::string& name, const std::string& contents) const {
    REQUIRE(files::WriteFileAtomically(File(name), contents).ok());
  }
  std::string Read(const std::string& name) const { return files::ReadFile(File(name), 1 << 20).value(); }
  Names Files() const { return files::ListDirectory(path).value(); }

  // The step that the latest checkpoint holds; -1 if there is none.
  int64_t LatestStep() const {
    const LatestCheckpoint latest = FindLatestCheckpoint(path).value();
    return latest.reader == nullptr ? -1 : latest.reader->Read("global_step").value().scalar<int64_t>();
  }
  std::string Note() const { return FindLatestCheckpoint(path).value().note; }

  std::string path;
};

TEST_CASE("Checkpoints are kept in the order of saving, as TensorFlow's Saver does") {
  // TensorFlow's Saver(max_to_keep=2), saving at steps 10, 2, 30, 10, keeps and lists 30 and 10.
  const ModelDir dir;
  dir.Save({"10", "2", "30", "10"}, /*keep_max=*/2);
  CHECK(dir.Read("checkpoint") ==
        "model_checkpoint_path: \"model.ckpt-10\"\n"
        "all_model_checkpoint_paths: \"model.ckpt-30\"\n"
        "all_model_checkpoint_paths: \"model.ckpt-10\"\n");
  CHECK(dir.Files() == Names{"checkpoint", "model.ckpt-10.data-00000-of-00001", "model.ckpt-10.index",
                             "model.ckpt-30.data-00000-of-00001", "model.ckpt-30.index"});
  CHECK(dir.LatestStep() == 10);
  CHECK(dir.Note().empty());
}

TEST_CASE("Checkpoints of earlier runs count, and go with their graph") {
  const ModelDir dir;
  dir.Save({"1", "2"});
  dir.Write("model.ckpt-1.meta", "graph");
  dir.Write("model.ckpt-10.data-00000-of-00001", "of another step");
  dir.Save({"3"}, /*keep_max=*/2);
  CHECK(dir.Files() == Names{"checkpoint", "model.ckpt-10.data-00000-of-00001", "model.ckpt-2.data-00000-of-00001",
                             "model.ckpt-2.index", "model.ckpt-3.data-00000-of-00001", "model.ckpt-3.index"});
}

TEST_CASE("A checkpoint of the same step is replaced with all its files") {
  const ModelDir dir;
  dir.Save({"1"});
  const Names not_ours = {"model.ckpt-10.meta", "model.ckpt-1.data", "model.ckpt-1.tar"};
  for (const std::string name :
       {"model.ckpt-1.meta", "model.ckpt-1.data-00000-of-00002", "model.ckpt-1.data-00001-of-00002"}) {
    dir.Write(name, "of the one before");
  }
  for (const std::string& name : not_ours) dir.Write(name, "");
  dir.Save({"1"});
  CHECK(dir.Files() == Names{"checkpoint", not_ours[1], "model.ckpt-1.data-00000-of-00001", "model.ckpt-1.index",
                             not_ours[2], not_ours[0]});
  CHECK(dir.LatestStep() == 1);
  // A graph that is written with the checkpoint stays.
  REQUIRE(dir.SaveStep(*CheckpointSaver::Open(dir.path, 5, "graph").value(), 1).ok());
  CHECK(dir.Read("model.ckpt-1.meta") == "graph");
}

TEST_CASE("keep_max 0 keeps all and lists the last") {
  const ModelDir dir;
  dir.Save({"1", "2"}, /*keep_max=*/0);
  CHECK(dir.Files().size() == 5);
  CHECK(dir.Read("checkpoint") ==
        "model_checkpoint_path: \"model.ckpt-2\"\nall_model_checkpoint_paths: \"model.ckpt-2\"\n");
}

TEST_CASE("Only files of this directory that a saver has named are removed") {
  const ModelDir other, dir;
  other.Save({"1"});
  REQUIRE(files::MakeDirectories(dir.path).ok());
  dir.Write("precious.index", "");
  dir.Write("checkpoint", absl::StrCat("model_checkpoint_path: \"", other.path, "/model.ckpt-1\"\n",
                                       "all_model_checkpoint_paths: \"precious\"\n"));
  dir.Save({"7"}, /*keep_max=*/1);
  CHECK(other.Files().size() == 3);
  CHECK(dir.Files() == Names{"checkpoint", "model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index", "precious.index"});
}

TEST_CASE("A checkpoint whose step has leading zeros is found by the state file alone") {
  const ModelDir dir;
  dir.Save({"7"});
  std::filesystem::remove(dir.File("checkpoint"));
  for (const std::string suffix : {".index", ".data-00000-of-00001"}) {
    std::filesystem::rename(dir.File("model.ckpt-7" + suffix), dir.File("model.ckpt-007" + suffix));
  }
  CHECK(dir.LatestStep() == -1);
  CHECK(ListCheckpoints(dir.path).value().empty());
  dir.Write("checkpoint", "model_checkpoint_path: \"model.ckpt-007\"\n");
  CHECK(dir.LatestStep() == 7);
  CHECK(ListCheckpoints(dir.path).value() == Names{dir.File("model.ckpt-007")});
}

TEST_CASE("Tensors and strings are written in the order of their names") {
  const ModelDir dir;
  REQUIRE(dir.Open()
              ->Save(3, {{"a", Tensor::Scalar<float>(1)}, {"c", Tensor::Scalar<float>(2)}},
                     {{"_run/flags", "x"}, {"b", "y"}, {"d", "z"}})
              .ok());
  const LatestCheckpoint latest = FindLatestCheckpoint(dir.path).value();
  CHECK(latest.prefix == dir.File("model.ckpt-3"));
  CHECK(latest.reader->ReadStrings("_run/flags").value() == Names{"x"});
  CHECK(latest.reader->Read("c").value().scalar<float>() == 2);
  // Length, checksum and text of a string are 6 bytes: x at 0, a at 6, y at 10, c at 16, z at 20.
  const std::string data = dir.Read("model.ckpt-3.data-00000-of-00001");
  REQUIRE(data.size() == 26);
  CHECK(data[5] == 'x');
  CHECK(data[15] == 'y');
  CHECK(data[25] == 'z');
}

TEST_CASE("A directory without checkpoints has none") {
  const ModelDir dir;
  CHECK(dir.LatestStep() == -1);
  dir.Open();
  CHECK(dir.LatestStep() == -1);
  CHECK(dir.Note().empty());
  CHECK(dir.Files().empty());
}

TEST_CASE("State files of TensorFlow are understood") {
  const ModelDir dir;
  dir.Save({"1", "2"});
  // CheckpointManager writes timestamps; other writers absolute paths, escapes and fields that are new.
  dir.Write("checkpoint",
            "model_checkpoint_path: \"model\\056ckpt-\\x31\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-1\"\n"
            "all_model_checkpoint_timestamps: 1700000000.25\n"
            "last_preserved_timestamp: 1.5e9\nsomething_new: 3\n");
  CHECK(dir.LatestStep() == 1);
  dir.Write("checkpoint", absl::StrCat("model_checkpoint_path: \"", dir.path, "/model.ckpt-1\""));
  CHECK(dir.LatestStep() == 1);
  CHECK(dir.Note().empty());
}

TEST_CASE("A state file that names a directory of another user's is of a copy") {
  if (geteuid() == 0) return;  // nothing is forbidden to root
  const ModelDir dir, closed;
  dir.Save({"1"});
  closed.Save({"1"});
  dir.Write("checkpoint", absl::StrCat("model_checkpoint_path: \"", closed.path, "/model.ckpt-1\""));
  REQUIRE(chmod(closed.path.c_str(), 0) == 0);
  const int step = dir.LatestStep();
  const std::string note = dir.Note();
  REQUIRE(chmod(closed.path.c_str(), 0700) == 0);
  CHECK(step == 1);
  CHECK_THAT(note, Contains(absl::StrCat("using ", dir.path, "/model.ckpt-1")) && Contains("Permission denied"));
}

TEST_CASE("A latest checkpoint that the state file has among the others counts as the last, once") {
  const ModelDir dir;
  dir.Save({"10", "20", "30"});
  dir.Write("checkpoint",
            "model_checkpoint_path: \"model.ckpt-10\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-10\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-20\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-30\"\n");
  dir.Save({"40"}, /*keep_max=*/3);
  CHECK(dir.Read("checkpoint") ==
        "model_checkpoint_path: \"model.ckpt-40\"\n"
        "all_model_checkpoint_paths: \"model.ckpt-30\"\n"
        "all_model_checkpoint_paths: \"model.ckpt-10\"\n"
        "all_model_checkpoint_paths: \"model.ckpt-40\"\n");
  for (const char* step : {"10", "30", "40"})
    CHECK(files::Exists(dir.File(absl::StrCat("model.ckpt-", step, ".index"))));
  CHECK_FALSE(files::Exists(dir.File("model.ckpt-20.index")));
}

TEST_CASE("Without a usable state file the highest intact step is taken, and the log says why") {
  const ModelDir dir;
  dir.Save({"9", "100", "20"});
  CHECK(dir.LatestStep() == 20);
  const auto with_state = [&](const std::string& text, const std::string& why) {
    dir.Write("checkpoint", text);
    CHECK(dir.LatestStep() == 100);
    CHECK_THAT(dir.Note(), Contains("using " + dir.File("model.ckpt-100")) && Contains(why));
  };
  with_state("", "checkpoint: is empty");
  with_state(std::string(80, '\0'), "is damaged or cut off");
  with_state("model_checkpoint_path: \"model.ckpt-2", "is damaged or cut off");
  with_state("all_model_checkpoint_paths: \"model.ckpt-20\"", "is damaged or cut off");
  with_state("model_checkpoint_path: \"model.ckpt-50\"", "model.ckpt-50.index: No such file");
  with_state("model_checkpoint_path: \"/elsewhere/model.ckpt-20\"", "/elsewhere/model.ckpt-20.index: No such file");
  REQUIRE(files::RemoveFile(dir.File("checkpoint")).ok());
  CHECK(dir.LatestStep() == 100);
  CHECK_THAT(dir.Note(), Contains("checkpoint: No such file"));
}

TEST_CASE("Damaged checkpoints are passed over") {
  const ModelDir dir;
  dir.Save({"1", "2", "3", "4", "5"});
  dir.Write("model.ckpt-5.data-00000-of-00001", "12345678");
  REQUIRE(files::RemoveFile(dir.File("model.ckpt-4.data-00000-of-00001")).ok());
  dir.Write("model.ckpt-3.index", "");
  CHECK(dir.LatestStep() == 2);
  CHECK_THAT(dir.Note(),
             Contains("model.ckpt-5.data-00000-of-00001: tensor \"global_step\", 8 bytes at offset 0: Checksum does") &&
                 Contains("model.ckpt-4.data-00000-of-00001: No such file") &&
                 Contains("model.ckpt-3.index: holds 0 bytes"));
}

TEST_CASE("In place of a damaged checkpoint the one that was saved before it is taken, whatever its name is") {
  const ModelDir dir;
  dir.Save({"1", "2", "3"});
  // As tf.train.CheckpointManager names and lists them.
  for (const char* name : {"ckpt-1", "ckpt-2", "ckpt-3"}) {
    for (const char* suffix : {".index", ".data-00000-of-00001"}) {
      std::filesystem::rename(dir.File(absl::StrCat("model.", name, suffix)), dir.File(absl::StrCat(name, suffix)));
    }
  }
  dir.Write("checkpoint",
            "model_checkpoint_path: \"ckpt-3\"\n"
            "all_model_checkpoint_paths: \"ckpt-1\"\n"
            "all_model_checkpoint_paths: \"ckpt-2\"\n"
            "all_model_checkpoint_paths: \"ckpt-3\"\n");
  REQUIRE(files::RemoveFile(dir.File("ckpt-3.index")).ok());
  CHECK(dir.LatestStep() == 2);
  CHECK_THAT(dir.Note(), Contains("using " + dir.File("ckpt-2")) && Contains("ckpt-3.index: No such file"));
  dir.Write("ckpt-2.index", "");
  CHECK(dir.LatestStep() == 1);
}

TEST_CASE("If no checkpoint is intact, training does not start again by itself") {
  const ModelDir dir;
  dir.Save({"1"});
  REQUIRE(files::RemoveFile(dir.File("model.ckpt-1.data-00000-of-00001")).ok());
  const absl::Status status = FindLatestCheckpoint(dir.path).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(Message(status), Contains("no checkpoint in " + dir.path) && Contains("model.ckpt-1.data-00000-of-00001"));

  const ModelDir power_lost;
  power_lost.Open();
  for (const char* name : {"checkpoint", "model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001"})
    power_lost.Write(name, "");
  CHECK(absl::IsDataLoss(FindLatestCheckpoint(power_lost.path).status()));
}

TEST_CASE("A save that was killed leaves the checkpoint before, and its rest is cleaned up") {
  const ModelDir dir;
  dir.Save({"1"});
  dir.Write("model.ckpt-2.data-00000-of-00001.incomplete-01234567", "half");
  dir.Write("model.ckpt-2.index.incomplete-89abcdef", "half");
  dir.Write("checkpoint.incomplete-76543210", "half");
  const Names not_ours = {"checkpoint.incomplete", "mine.incomplete-01234567",
                          "model.ckpt-x.index.incomplete-01234567"};
  for (const std::string& name : not_ours) dir.Write(name, "");
  CHECK(dir.LatestStep() == 1);
  dir.Open();
  CHECK(dir.Files() == Names{"checkpoint", not_ours[0], not_ours[1], "model.ckpt-1.data-00000-of-00001",
                             "model.ckpt-1.index", not_ours[2]});
}

TEST_CASE("A save of the same step that was killed between its two renames is finished") {
  const ModelDir dir;
  {
    // The newer checkpoint of step 1, as the killed save had it.
    REQUIRE(dir.Open()->Save(1, {{"global_step", Tensor::Scalar<int64_t>(1)}, {"new", Tensor::Scalar<float>(1)}}).ok());
  }
  const std::string new_index = dir.Read("model.ckpt-1.index");
  const std::string new_data = dir.Read("model.ckpt-1.data-00000-of-00001");
  dir.Save({"1"});
  dir.Write("model.ckpt-1.data-00000-of-00001", new_data);
  dir.Write("model.ckpt-1.index.incomplete-01234567", new_index);
  dir.Open();
  CHECK(dir.LatestStep() == 1);
  CHECK(FindLatestCheckpoint(dir.path).value().reader->Find("new").has_value());
  CHECK(dir.Files().size() == 3);
}

// The files of checkpoints, in the order of their names.
Names FilesOf(const Names& steps) {
  Names names;
  for (const std::string& step : steps) {
    names.push_back("model.ckpt-" + step + ".data-00000-of-00001");
    names.push_back("model.ckpt-" + step + ".index");
  }
  return names;
}
Names WithStateFile(Names names) {
  names.insert(names.begin(), "checkpoint");
  return names;
}

TEST_CASE("A saver that is killed while it removes checkpoints has them removed by the next") {
  // What the state file says then: the new checkpoint beside all before.
  const std::string state =
      "model_checkpoint_path: \"model.ckpt-4\"\n"
      "all_model_checkpoint_paths: \"model.ckpt-1\"\n"
      "all_model_checkpoint_paths: \"model.ckpt-2\"\n"
      "all_model_checkpoint_paths: \"model.ckpt-3\"\n"
      "all_model_checkpoint_paths: \"model.ckpt-4\"\n";
  const ModelDir dir;
  dir.Save({"1", "2", "3", "4"});
  dir.Write("checkpoint", state);
  dir.Write("model.ckpt-1.meta", "graph");

  SECTION("before the first file") {
    dir.Open(/*keep_max=*/2);
    CHECK(dir.Files().size() == 10);  // nothing is removed that could still be read
    dir.Save({"5"}, /*keep_max=*/2);
    CHECK(dir.Files() == WithStateFile(FilesOf({"4", "5"})));
  }
  SECTION("after an index") {
    REQUIRE(files::RemoveFile(dir.File("model.ckpt-1.index")).ok());
    dir.Open(/*keep_max=*/2);
    CHECK(dir.Files() == WithStateFile(FilesOf({"2", "3", "4"})));
    CHECK(dir.LatestStep() == 4);
    dir.Save({"5"}, /*keep_max=*/2);
    CHECK(dir.Files() == WithStateFile(FilesOf({"4", "5"})));
  }
  SECTION("the latest is never taken for one that was being removed") {
    REQUIRE(files::RemoveFile(dir.File("model.ckpt-4.index")).ok());
    dir.Open(/*keep_max=*/2);
    CHECK(files::Exists(dir.File("model.ckpt-4.data-00000-of-00001")));
    CHECK(dir.LatestStep() == 3);
  }
}

TEST_CASE("The state file lists checkpoints until they are removed") {
  const ModelDir dir;
  dir.Save({"1", "2"});
  // A directory cannot be removed as a file is: the removal of checkpoint 1 fails half way.
  REQUIRE(files::RemoveFile(dir.File("model.ckpt-1.data-00000-of-00001")).ok());
  REQUIRE(files::MakeDirectories(dir.File("model.ckpt-1.data-00000-of-00001")).ok());
  CHECK_FALSE(dir.SaveStep(*dir.Open(/*keep_max=*/2), 3).ok());
  CHECK_THAT(dir.Read("checkpoint"), Contains("model_checkpoint_path: \"model.ckpt-3\"") && Contains("model.ckpt-1\""));
  CHECK(dir.LatestStep() == 3);
}

TEST_CASE("Data without an index is removed if it is older than all that is kept and was there before the run") {
  const ModelDir dir;
  dir.Save({"3", "5", "7"});
  const std::string orphan = "model.ckpt-1.data-00000-of-00001", between = "model.ckpt-6.data-00000-of-00001";
  const Names not_ours = {"model.ckpt-2.data-00000-of-00002", "model.ckpt-2.data", "model.ckpt-1.tar", "1.data"};
  for (const std::string& name : not_ours) dir.Write(name, "");
  dir.Write(orphan, "orphan");
  dir.Write(between, "may be repaired");
  dir.Write("model.ckpt-2.data-00000-of-00001", "a copy that is not complete yet");
  const auto saver = dir.Open(/*keep_max=*/3);
  CHECK(files::Exists(dir.File(orphan)));
  dir.Write("model.ckpt-2.index", "but is by now");
  dir.Write("model.ckpt-0.data-00000-of-00001", "somebody copies it at this moment");
  REQUIRE(dir.SaveStep(*saver, 9).ok());
  CHECK_FALSE(files::Exists(dir.File(orphan)));
  for (const std::string& name : not_ours) CHECK(files::Exists(dir.File(name)));
  for (const std::string name : {"0.data-00000-of-00001", "2.data-00000-of-00001", "2.index"}) {
    CHECK(files::Exists(dir.File("model.ckpt-" + name)));
  }
  CHECK(files::Exists(dir.File(between)));
}

TEST_CASE("A checkpoint that the user has put there stays") {
  const ModelDir other, dir;
  other.Save({"1"});
  dir.Save({"3", "4"});
  for (const std::string& name : FilesOf({"1"})) std::filesystem::copy(other.File(name), dir.File(name));
  dir.Save({"5", "6"}, /*keep_max=*/2);
  CHECK(dir.Files() == WithStateFile(FilesOf({"1", "5", "6"})));
}

TEST_CASE(
    "Links of the names of a checkpoint are replaced, not followed, and one in place of the state file is reported") {
  const ModelDir dir;
  dir.Save({"1"});
  dir.Write("precious", "precious");
  for (const std::string& name : FilesOf({"2"})) std::filesystem::create_symlink("precious", dir.File(name));
  dir.Save({"2"});
  CHECK(dir.LatestStep() == 2);
  std::filesystem::rename(dir.File("checkpoint"), dir.File("state"));
  std::filesystem::create_symlink("precious", dir.File("checkpoint"));
  const absl::Status status = CheckpointSaver::Open(dir.path, 5).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(Message(status), Contains(dir.File("checkpoint") + ": it is a symbolic link"));
  CHECK(dir.Read("precious") == "precious");
}

TEST_CASE("A full disk keeps the checkpoints before, and says what was needed") {
  const ModelDir dir;
  const auto saver = dir.Open();
  REQUIRE(dir.SaveStep(*saver, 1).ok());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {100000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status status = saver->Save(2, {{"large", Tensor(compute::DType::kFloat32, {1000, 1000})}});
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(absl::IsAborted(status));
  CHECK_THAT(Message(status), Contains("the checkpoint of step 2, which needs 4000000 bytes, was not saved") &&
                                  Contains(dir.File("model.ckpt-2.data-00000-of-00001")) && Contains("File too large"));
  CHECK(dir.Files().size() == 3);
  CHECK(dir.LatestStep() == 1);
  REQUIRE(dir.SaveStep(*saver, 2).ok());
  CHECK(dir.LatestStep() == 2);
}

TEST_CASE("A place where nothing can be saved is found when the saver is opened") {
  const ModelDir dir;
  REQUIRE(files::WriteFileAtomically(dir.path, "a file").ok());
  CHECK(absl::IsFailedPrecondition(CheckpointSaver::Open(dir.path, 5).status()));
  CHECK(absl::IsFailedPrecondition(CheckpointSaver::Open(dir.path + "/below", 5).status()));
  CHECK_FALSE(CheckpointSaver::Open("/proc/sys", 5).ok());
}

TEST_CASE("A directory's name may hold anything") {
  ModelDir dir;
  dir.path += "/with space, \"quote\", \n newline and \xc3\xa4";
  dir.Save({"1", "2"}, /*keep_max=*/1);
  CHECK(dir.LatestStep() == 2);
  CHECK(dir.Files().size() == 3);
}

TEST_CASE("A checkpoint is opened by its directory, its prefix and each of its files") {
  const ModelDir dir;
  dir.Save({"1", "2"});
  for (const std::string& named : {dir.path, dir.File("checkpoint"), dir.File("model.ckpt-2"),
                                   dir.File("model.ckpt-2.index"), dir.File("model.ckpt-2.data-00000-of-00001")}) {
    CHECK(OpenCheckpoint(named).value().prefix == dir.File("model.ckpt-2"));
  }
  CHECK(OpenCheckpoint(dir.File("model.ckpt-1")).value().reader->Find("global_step").has_value());
  REQUIRE(files::MakeDirectories(dir.File("run.data-v2")).ok());
  dir.Write("run.data-v2/weights", "");
  CHECK(CheckpointNamed(dir.File("run.data-v2/weights")) == dir.File("run.data-v2/weights"));
}

TEST_CASE("What is no checkpoint is told from what is missing") {
  const ModelDir dir;
  dir.Save({"600", "700"});
  absl::Status status = OpenCheckpoint(dir.File("model.ckpt-60")).status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(Message(status), Contains("model.ckpt-60.index does not exist; did you mean model.ckpt-600?"));
  dir.Write("weights.npz", "PK\x03\x04 and more");
  status = OpenCheckpoint(dir.File("weights.npz")).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(Message(status), Contains("weights.npz is a zip archive, not a checkpoint"));
  dir.Write("weights.index", "PK\x03\x04 and more");
  CHECK_THAT(Message(OpenCheckpoint(dir.File("weights")).status()), Contains("(the file is a zip archive)"));
  REQUIRE(files::RemoveFile(dir.File("model.ckpt-600.index")).ok());
  status = OpenCheckpoint(dir.File("model.ckpt-600.data-00000-of-00001")).status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(Message(status), Contains("has no") && Contains("model.ckpt-600.index with it"));
  CHECK(absl::IsNotFound(OpenCheckpoint(ModelDir().path).status()));
}

TEST_CASE("Checkpoints that only a state file would find are named where there is none") {
  const ModelDir dir;
  REQUIRE(files::MakeDirectories(dir.path).ok());
  const auto message = [&] {
    const absl::Status status = OpenCheckpoint(dir.path).status();
    CHECK(absl::IsNotFound(status));
    return Message(status);
  };
  dir.Write("ckpt-4.data-00000-of-00001", "");
  CHECK(message() == "there is no checkpoint in " + dir.path);
  dir.Write("ckpt-5.index", "");
  const std::string named = dir.path + " has no state file that names its latest checkpoint; name one: ";
  CHECK(message() == named + dir.File("ckpt-5"));
  dir.Write("checkpoint", "damaged");
  for (const char* name : {"ckpt-6.index", "ckpt-7.index", "ckpt-8.index"}) dir.Write(name, "");
  CHECK(message() == named + dir.File("ckpt-5") + ", " + dir.File("ckpt-6") + ", " + dir.File("ckpt-7") + ", ...");
}

TEST_CASE("Checkpoints are listed in the order of saving, those that are not in the state file first") {
  const ModelDir dir;
  dir.Save({"10", "2", "30"}, /*keep_max=*/0);  // the state file has 30 alone
  dir.Save({"7", "40"}, /*keep_max=*/3);
  const auto in_dir = [&](const Names& steps) {
    Names prefixes;
    for (const std::string& step : steps) prefixes.push_back(dir.File("model.ckpt-" + step));
    return prefixes;
  };
  CHECK(ListCheckpoints(dir.path).value() == in_dir({"2", "10", "30", "7", "40"}));
  REQUIRE(files::RemoveFile(dir.File("model.ckpt-7.index")).ok());
  CHECK(ListCheckpoints(dir.path).value() == in_dir({"2", "10", "30", "40"}));
  REQUIRE(files::RemoveFile(dir.File("checkpoint")).ok());
  CHECK(ListCheckpoints(dir.path).value() == in_dir({"2", "10", "30", "40"}));
  CHECK_FALSE(ListCheckpoints(dir.File("nowhere")).ok());
}

TEST_CASE("A checkpoint is listed once, whichever path of its directory the state file has") {
  const ModelDir dir;
  dir.Save({"1", "2"});
  dir.Write("checkpoint", absl::StrCat("model_checkpoint_path: \"", dir.path, "/model.ckpt-2\"\n",
                                       "all_model_checkpoint_paths: \"", dir.path, "/model.ckpt-2\"\n"));
  CHECK(ListCheckpoints(dir.path + "/.").value() == Names{dir.path + "/./model.ckpt-1", dir.path + "/model.ckpt-2"});
}

TEST_CASE("Linked checkpoints outlive those that they are links to, and are a directory of checkpoints") {
  const ModelDir dir;
  ModelDir best;
  best.path = dir.path + "/best";
  CHECK(LinkedSteps(best.path).value().empty());
  const auto save_and_link = [&](const std::string& step, const std::vector<int64_t>& steps) {
    dir.Save({step}, /*keep_max=*/1);
    REQUIRE(LinkCheckpoints(dir.path, best.path, steps, std::stoll(step)).ok());
  };
  save_and_link("10", {10});
  CHECK(std::filesystem::equivalent(dir.File("model.ckpt-10.index"), best.File("model.ckpt-10.index")));
  save_and_link("20", {20, 10});
  save_and_link("30", {20, 10});  // it is worse than both
  CHECK(LinkedSteps(best.path).value() == std::set<int64_t>{10, 20});
  CHECK(best.LatestStep() == 10);
  CHECK(best.Note().empty());
  save_and_link("40", {10, 40});
  CHECK(best.Files() == Names{"checkpoint", "model.ckpt-10.data-00000-of-00001", "model.ckpt-10.index",
                              "model.ckpt-40.data-00000-of-00001", "model.ckpt-40.index"});
  CHECK(best.LatestStep() == 40);

  // Another checkpoint of the same step takes the place of the first.
  REQUIRE(dir.Open()->Save(40, {{"global_step", Tensor::Scalar<int64_t>(41)}}).ok());
  REQUIRE(LinkCheckpoints(dir.path, best.path, {10, 40}, 40).ok());
  CHECK(best.LatestStep() == 41);
  CHECK_FALSE(LinkCheckpoints(dir.path, best.path, {10, 50}, 50).ok());
  CHECK(best.LatestStep() == 41);
}

TEST_CASE("Linking that was killed leaves a latest checkpoint, and is finished when it is done again") {
  const ModelDir dir;
  ModelDir best;
  best.path = dir.path + "/best";
  dir.Save({"10", "20"});
  REQUIRE(LinkCheckpoints(dir.path, best.path, {10}, 10).ok());
  const auto copy = [&](const char* name) { std::filesystem::copy(dir.File(name), best.File(name)); };
  int64_t latest = 10;
  SECTION("before the new index") { copy("model.ckpt-20.data-00000-of-00001"); }
  SECTION("before the new state file") {
    copy("model.ckpt-20.data-00000-of-00001");
    copy("model.ckpt-20.index");
  }
  SECTION("after it, in the removal of the old one") {
    REQUIRE(LinkCheckpoints(dir.path, best.path, {10, 20}, 20).ok());
    REQUIRE(files::RemoveFile(best.File("model.ckpt-10.index")).ok());
    latest = 20;
  }
  CHECK(best.LatestStep() == latest);
  CHECK(best.Note().empty());
  REQUIRE(LinkCheckpoints(dir.path, best.path, {20}, 20).ok());
  CHECK(best.Files() == Names{"checkpoint", "model.ckpt-20.data-00000-of-00001", "model.ckpt-20.index"});
  CHECK(best.LatestStep() == 20);
}

}  // namespace
}  // namespace official::train
