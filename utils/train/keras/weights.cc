#include "utils/train/keras/weights.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::keras {

absl::Status CheckWeights(const std::string& model, const std::vector<std::string>& names, const Weights& weights) {
  for (const auto& [name, value] : weights) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return absl::NotFoundError(
        absl::StrCat("model ", model, " has no weight ", name, "; it has ", absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

absl::Status WriteWeights(const std::string& path, const Weights& weights) {
  if (const size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0) {
    RETURN_IF_ERROR(files::MakeDirectories(path.substr(0, slash)));
  }
  ASSIGN_OR_RETURN(const auto writer, train::BundleWriter::Create(path));
  for (const auto& [name, value] : weights) RETURN_IF_ERROR(writer->Add(name, value));
  return writer->Finish();
}

absl::StatusOr<Weights> ReadWeights(const std::string& path) {
  ASSIGN_OR_RETURN(const auto reader, train::BundleReader::Open(path));
  Weights weights;
  for (const train::StoredTensor& tensor : reader->ListTensors()) {
    ASSIGN_OR_RETURN(weights[tensor.name], reader->Read(tensor.name));
  }
  return weights;
}

}  // namespace official::keras
