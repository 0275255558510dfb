#include "official/checkpoint_tool/checkpoint.h"

#include <re2/re2.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/misc/run_files.h"
#include "utils/misc/text.h"
#include "utils/train/checkpoint/bundle.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/checkpoint/object_names.h"
#include "utils/train/checkpoint/safetensors.h"

namespace official::checkpoint_tool {
namespace {

using train::StoredTensor;

// The metadata by which readers know which framework named the variables.
const std::map<std::string, std::string> kOwnMetadata = {{"format", "tf"}};

// The end of the name of the list of a checkpoint's files, where these are several.
constexpr absl::string_view kSafetensorsIndexSuffix = ".safetensors.index.json";

bool IsSafetensors(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (absl::EndsWith(path, train::kSafetensorsSuffix)) return true;
  constexpr int kHeadBytes = 9;
  char head[kHeadBytes];
  const auto file = files::RandomAccessFile::Open(path);
  return file.ok() && (*file)->Read(0, kHeadBytes, head).ok() &&
         train::LooksLikeSafetensors(absl::string_view(head, kHeadBytes), (*file)->size());
}

absl::Status CopyVariable(const Checkpoint& source, const std::string& old_name, const std::string& new_name,
                          train::BundleWriter& writer) {
  const StoredTensor variable = *source.reader->Find(old_name);
  if (variable.dtype_name == "string") {
    ASSIGN_OR_RETURN(const std::vector<std::string> texts, source.reader->ReadStrings(old_name));
    return writer.AddStrings(new_name, variable.shape, texts);
  }
  ASSIGN_OR_RETURN(const compute::Tensor tensor, source.reader->Read(old_name));
  return writer.Add(new_name, tensor);
}

// The files of a TensorFlow checkpoint that are there.
std::vector<std::string> FilesOfBundle(const std::string& prefix) {
  std::vector<std::string> found;
  const std::string directory = files::DirectoryOf(prefix), name = std::filesystem::path(prefix).filename();
  const auto entries = files::ListDirectory(directory);
  if (!entries.ok()) return found;
  for (const std::string& entry : *entries) {
    if (absl::StartsWith(entry, name) &&
        re2::RE2::FullMatch(entry.substr(name.size()), R"(\.(index|meta|data-\d+-of-\d+))")) {
      found.push_back(files::JoinPath(directory, entry));
    }
  }
  return found;
}

absl::StatusOr<int> WriteBundle(const Checkpoint& source, const VariableNames& names, const std::string& prefix) {
  ASSIGN_OR_RETURN(const auto writer, train::BundleWriter::Create(prefix));
  for (const auto& [new_name, old_name] : names) {
    RETURN_IF_ERROR(CopyVariable(source, old_name, new_name, *writer));
  }
  RETURN_IF_ERROR(writer->Finish());
  // The files of a checkpoint that was overwritten: other shards, and the graph of its variables.
  for (const std::string& file : FilesOfBundle(prefix)) {
    if (absl::EndsWith(file, misc::kIndexSuffix) || absl::EndsWith(file, misc::kDataSuffix)) continue;
    RETURN_IF_ERROR(files::RemoveFile(file));
  }
  return static_cast<int>(names.size());
}

absl::StatusOr<int> WriteSafetensors(const Checkpoint& source, const VariableNames& names, const std::string& path) {
  std::map<std::string, train::SafetensorsTensor> tensors;
  std::map<std::string, std::string> strings;
  for (const auto& [new_name, old_name] : names) {
    const StoredTensor variable = *source.reader->Find(old_name);
    if (variable.dtype) {
      tensors[new_name] = {{*variable.dtype, variable.shape},
                           [&source, name = old_name] { return source.reader->Read(name); }};
      continue;
    }
    if (variable.dtype_name != "string") return source.reader->Read(old_name).status();
    ASSIGN_OR_RETURN(const std::vector<std::string> texts, source.reader->ReadStrings(old_name));
    if (variable.shape.rank() == 0 && misc::IsUtf8(texts[0])) {
      strings[new_name] = texts[0];
    } else {
      LOG(WARNING) << "variable " << misc::Printable(old_name) << " (" << TypeText(variable)
                   << ") is left out: safetensors holds single strings of UTF-8 only";
    }
  }
  const auto& metadata = source.metadata.empty() ? kOwnMetadata : source.metadata;
  RETURN_IF_ERROR(train::WriteSafetensors(path, tensors, strings, metadata));
  return static_cast<int>(tensors.size() + strings.size());
}

}  // namespace

bool Output::is_safetensors() const { return absl::EndsWith(path, train::kSafetensorsSuffix); }

std::string TypeText(const StoredTensor& variable) {
  return absl::StrCat(variable.dtype_name, variable.shape.ToString());
}

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& named) {
  std::error_code error;
  if (absl::EndsWith(named, kSafetensorsIndexSuffix) && std::filesystem::is_regular_file(named, error)) {
    return absl::DataLossError(
        absl::StrCat(named, " lists the safetensors files of a checkpoint; name one of these files"));
  }
  if (IsSafetensors(named)) {
    ASSIGN_OR_RETURN(std::unique_ptr<train::SafetensorsReader> reader, train::SafetensorsReader::Open(named));
    std::map<std::string, std::string> metadata = reader->metadata();
    return Checkpoint{named, std::move(reader), std::move(metadata)};
  }
  ASSIGN_OR_RETURN(train::LatestCheckpoint latest, train::OpenCheckpoint(named));
  if (!latest.note.empty()) {
    LOG(WARNING) << latest.note;
  }
  absl::StatusOr<std::unique_ptr<train::TensorReader>> reader = train::WithVariableNames(std::move(latest.reader));
  if (!reader.ok()) {
    return absl::Status(reader.status().code(), absl::StrCat(latest.prefix, ": ", reader.status().message()));
  }
  return Checkpoint{latest.prefix, *std::move(reader), {}};
}

absl::Status CheckHasVariable(const Checkpoint& checkpoint, const std::string& name) {
  if (checkpoint.reader->Find(name)) return absl::OkStatus();
  std::vector<std::string> names;
  for (const StoredTensor& variable : checkpoint.reader->ListTensors()) names.push_back(variable.name);
  const std::vector<std::string> nearest = misc::NearestNames(name, names);
  return absl::NotFoundError(absl::StrCat(
      checkpoint.path, ": there is no variable ", misc::Printable(name),
      nearest.empty() ? absl::StrCat("; \"checkpoint_tool ls ", checkpoint.path, "\" lists those that are there")
                      : absl::StrCat("; did you mean ", absl::StrJoin(nearest, " or "), "?")));
}

absl::Status CheckVariableName(const std::string& name) {
  if (!name.empty() && name[0] != '\0') return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a variable cannot have the name \"", misc::Printable(name),
                                                 "\"; give it another one with rename --map=REGEX=REPLACEMENT"));
}

absl::Status CheckOutput(const Output& output) {
  std::error_code error;
  const std::string& path = output.path;
  if (path.empty() || absl::EndsWith(path, "/") || std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\" is a directory; name the checkpoint in it, such as ",
                                                   files::JoinPath(path.empty() ? "." : path, "model.ckpt-0"),
                                                   ", or a .safetensors file"));
  }
  if (absl::EndsWith(path, misc::kIndexSuffix) ||
      absl::StrContains(std::filesystem::path(path).filename().string(), ".data-")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is one file of a checkpoint; name its prefix, without .index or .data-..."));
  }
  std::vector<std::string> taken = output.is_safetensors() ? std::vector<std::string>{} : FilesOfBundle(path);
  if (output.is_safetensors() && files::Exists(path)) taken.push_back(path);
  if (!taken.empty() && !output.overwrite) {
    return absl::AlreadyExistsError(absl::StrCat(taken[0], " exists; add --overwrite to replace it"));
  }
  return files::CheckCanWriteIn(files::DirectoryOf(path));
}

absl::StatusOr<int> WriteCheckpoint(const Checkpoint& source, const VariableNames& names, const Output& output) {
  RETURN_IF_ERROR(CheckOutput(output));
  RETURN_IF_ERROR(files::MakeDirectories(files::DirectoryOf(output.path)));
  return output.is_safetensors() ? WriteSafetensors(source, names, output.path)
                                 : WriteBundle(source, names, output.path);
}

}  // namespace official::checkpoint_tool
