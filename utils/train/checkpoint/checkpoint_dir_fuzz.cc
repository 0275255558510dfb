// The input is the state file of a directory that holds one checkpoint. Whatever the file says, that checkpoint is
// found, and a saver that works there removes nothing that is not its own.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/files/files.h"
#include "utils/fuzzing/memory_file.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace {

namespace files = official::files;
using official::compute::Tensor;
using official::train::CheckpointSaver;
using official::train::FindLatestCheckpoint;

const std::string& Directory() {
  static const std::string* const directory = [] {
    const char* parent = std::getenv("TEST_TMPDIR");
    std::string name = absl::StrCat(parent ? parent : "/tmp", "/checkpoint_dir_fuzz-XXXXXX");
    OFFICIAL_CHECK(mkdtemp(name.data()) != nullptr) << name;
    OFFICIAL_CHECK(files::MakeDirectories(name + "/model").ok());
    OFFICIAL_CHECK(files::WriteFileAtomically(name + "/model.ckpt-1.index", "not the run's").ok());
    OFFICIAL_CHECK(files::WriteFileAtomically(name + "/model/precious.index", "not the run's").ok());
    std::atexit([] { std::filesystem::remove_all(Directory()); });
    return new std::string(name);
  }();
  return *directory;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string model_dir = Directory() + "/model", state_file = model_dir + "/checkpoint";
  const std::map<std::string, Tensor> tensors = {{"global_step", Tensor::Scalar<int64_t>(1)}};
  OFFICIAL_CHECK(CheckpointSaver::Open(model_dir, 1).value()->Save(1, tensors).ok());
  OFFICIAL_CHECK(files::RemoveFile(state_file).ok());
  {
    auto file = files::FileWriter::Open(state_file).value();
    OFFICIAL_CHECK(file->Append(official::fuzzing::AsBytes(data, size)).ok());
    OFFICIAL_CHECK(file->Close().ok());
  }

  const auto latest = FindLatestCheckpoint(model_dir);
  OFFICIAL_CHECK(latest.ok()) << latest.status();
  OFFICIAL_CHECK(latest->reader != nullptr);

  const auto saver = CheckpointSaver::Open(model_dir, 1);
  OFFICIAL_CHECK(saver.ok()) << saver.status();
  const absl::Status saved = (*saver)->Save(2, tensors);
  OFFICIAL_CHECK(saved.ok()) << saved;
  OFFICIAL_CHECK(FindLatestCheckpoint(model_dir).value().prefix == model_dir + "/model.ckpt-2");
  OFFICIAL_CHECK(files::Exists(Directory() + "/model.ckpt-1.index") && files::Exists(model_dir + "/precious.index"));
  OFFICIAL_CHECK(files::RemoveFile(state_file).ok());
  for (const std::string step : {"1", "2"}) {
    for (const std::string suffix : {".index", ".data-00000-of-00001"}) {
      OFFICIAL_CHECK(files::RemoveFile(absl::StrCat(model_dir, "/model.ckpt-", step, suffix)).ok());
    }
  }
  return 0;
}
