#include "utils/export/write_model.h"

#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/export/onnx_check.h"
#include "utils/export/onnx_converter.h"
#include "utils/export/onnx_model.h"
#include "utils/export/saved_model.h"
#include "utils/export/version_directory.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"

namespace official::exporting {
namespace {

// Compares what the graph computes with the answers of the trained model, before anything is written; what is written
// is then compared with the graph. It is computed in its ONNX form, whichever is written: both are made of it.
absl::Status CheckGraphAnswers(const GraphDefBuilder& graph, const Signature& signature, const NamedTensors& variables,
                               const Answers& answers) {
  const auto compare = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const onnx::ModelProto model, ConvertToOnnx(graph, signature, variables));
    return CheckOnnxAnswers(model, answers);
  };
  const absl::Status status = compare();
  if (!absl::IsUnimplemented(status)) return status;
  LOG(WARNING) << "the export is not compared with the trained model: " << status.message();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> WriteModel(const Destination& to, const GraphDefBuilder& graph,
                                       const std::map<std::string, compute::Tensor>& variables,
                                       absl::Span<const Signature> signatures,
                                       const std::map<std::string, std::string>& extra_files,
                                       const std::optional<Answers>& answers) {
  if (answers) RETURN_IF_ERROR(CheckGraphAnswers(graph, signatures[0], variables, *answers));
  return WriteVersion(to.export_dir, [&](const std::string& directory) -> absl::Status {
    RETURN_IF_ERROR(CheckNotStopped());
    if (to.onnx) {
      OFFICIAL_CHECK(signatures.size() == 1) << "an ONNX model is one function";
      RETURN_IF_ERROR(WriteOnnxModel(files::JoinPath(directory, "model.onnx"), graph, variables, signatures[0]));
    }
    RETURN_IF_ERROR(CheckNotStopped());
    if (to.saved_model) RETURN_IF_ERROR(WriteSavedModel(directory, graph, variables, signatures));
    const std::string extra_dir = files::JoinPath(directory, "assets.extra");
    if (!extra_files.empty()) RETURN_IF_ERROR(files::MakeDirectories(extra_dir));
    for (const auto& [name, content] : extra_files) {
      RETURN_IF_ERROR(CheckNotStopped());
      RETURN_IF_ERROR(files::WriteFileAtomically(files::JoinPath(extra_dir, name), content));
    }
    return absl::OkStatus();
  });
}

}  // namespace official::exporting
