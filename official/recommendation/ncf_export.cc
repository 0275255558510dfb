#include "official/recommendation/ncf_export.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/recommendation/ncf_input.h"
#include "utils/export/export_model.h"

namespace official::recommendation {

absl::StatusOr<std::string> ExportSavedModel(train::Estimator& estimator, const Ratings& ratings,
                                             const std::string& export_dir) {
  const auto lines = [](const std::vector<int32_t>& ids) { return absl::StrCat(absl::StrJoin(ids, "\n"), "\n"); };
  return exporting::ExportModel(
      estimator, TrainSpec(), {.key = "predict", .inputs = {{"user_id", "user_id", {}}, {"item_id", "item_id", {}}}},
      export_dir, {{"user_ids.txt", lines(ratings.user_ids)}, {"item_ids.txt", lines(ratings.item_ids)}});
}

}  // namespace official::recommendation
