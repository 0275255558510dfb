#include "utils/export/write_model.h"

#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/export/onnx_model.h"
#include "utils/export/saved_model.h"
#include "utils/export/version_directory.h"
#include "utils/files/files.h"

namespace official::exporting {

absl::StatusOr<std::string> WriteModel(const Destination& to, const GraphDefBuilder& graph,
                                       const std::map<std::string, compute::Tensor>& variables,
                                       absl::Span<const Signature> signatures,
                                       const std::map<std::string, std::string>& extra_files) {
  return WriteVersion(to.export_dir, [&](const std::string& directory) -> absl::Status {
    if (to.onnx) {
      OFFICIAL_CHECK(signatures.size() == 1) << "an ONNX model is one function";
      RETURN_IF_ERROR(WriteOnnxModel(files::JoinPath(directory, "model.onnx"), graph, variables, signatures[0]));
    }
    if (to.saved_model) RETURN_IF_ERROR(WriteSavedModel(directory, graph, variables, signatures));
    const std::string extra_dir = files::JoinPath(directory, "assets.extra");
    if (!extra_files.empty()) RETURN_IF_ERROR(files::MakeDirectories(extra_dir));
    for (const auto& [name, content] : extra_files) {
      RETURN_IF_ERROR(files::WriteFileAtomically(files::JoinPath(extra_dir, name), content));
    }
    return absl::OkStatus();
  });
}

}  // namespace official::exporting
