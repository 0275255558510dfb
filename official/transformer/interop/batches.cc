// batches DATA_DIR train|dev BATCH_TOKENS static|padded: prints the batches of an epoch, unshuffled: a line with their
// sizes [B, S, T], then a line with the ids of the inputs, row after row, and one with those of the targets.
#include <iostream>
#include <string>

#include "absl/strings/str_join.h"
#include "official/transformer/dataset.h"
#include "utils/compute/core/status.h"

namespace official::transformer {
namespace {

absl::Status Print(char** argv) {
  const std::string part = argv[2];
  ASSIGN_OR_RETURN(const TranslationsPtr translations,
                   Translations::Open(argv[1], part == "train" ? TranslationPart::kTrain : TranslationPart::kEval,
                                      kMaxLength, /*num_threads=*/2));
  ASSIGN_OR_RETURN(const auto batches,
                   TranslationBatches(translations, {.batch_tokens = std::stoll(argv[3]),
                                                     .static_batch = std::string(argv[4]) == "static",
                                                     .shuffle = false}));
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, batches->Next());
    if (!batch.has_value()) return absl::OkStatus();
    const compute::Tensor &inputs = batch->features[0], &targets = batch->labels[0];
    std::cout << batch->num_examples << " " << inputs.shape().dim(1) << " " << targets.shape().dim(1) << "\n"
              << absl::StrJoin(inputs.flat<int32_t>(), " ") << "\n"
              << absl::StrJoin(targets.flat<int32_t>(), " ") << "\n";
  }
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const absl::Status status = official::transformer::Print(argv);
  if (status.ok()) return 0;
  std::cerr << status << std::endl;
  return 1;
}
