// decode_ids MODEL_DIR PARAMS_OVERRIDE: translates the sentences on stdin, ids with EOS, one a line, as one batch by
// the tiny network in MODEL_DIR. Prints of each the score and the ids.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "official/transformer/decoder.h"
#include "official/transformer/model_params.h"
#include "utils/compute/core/status.h"
#include "utils/compute/kernel/device.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::transformer {
namespace {

absl::Status Run(const std::string& model_dir, const std::string& overrides) {
  ASSIGN_OR_RETURN(ModelParams params, ParamsOf("tiny", /*multi_gpu=*/false));
  RETURN_IF_ERROR(OverrideParams(overrides, &params));
  ASSIGN_OR_RETURN(const train::LatestCheckpoint latest, train::FindLatestCheckpoint(model_dir));
  if (latest.reader == nullptr) return absl::NotFoundError("there is no checkpoint");
  ASSIGN_OR_RETURN(const auto device, compute::MakeDevice("cpu"));
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   Decoder::Create(params, compute::DType::kFloat32, *device,
                                   [&](const compute::VariableSpec& spec) { return latest.reader->Read(spec.name); }));
  std::vector<std::vector<int32_t>> sentences;
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<int32_t>& ids = sentences.emplace_back();
    for (const absl::string_view id : absl::StrSplit(line, ' ')) ids.push_back(std::stoi(std::string(id)));
  }
  ASSIGN_OR_RETURN(const Decoded decoded, decoder->Translate(sentences));
  for (const Hypothesis& best : decoded.best) {
    std::cout << absl::StrFormat("%.7g ", best.score) << absl::StrJoin(best.ids, " ") << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) {
  const absl::Status status = official::transformer::Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::cerr << status << std::endl;
  return 1;
}
