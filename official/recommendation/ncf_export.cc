#include "official/recommendation/ncf_export.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/recommendation/ncf_input.h"
#include "utils/export/export_model.h"

namespace official::recommendation {

absl::StatusOr<std::string> ExportTrained(train::Estimator& estimator, const Ratings& ratings,
                                          const ItemNames& item_names, const exporting::Destination& to) {
  const auto lines = [](const std::vector<int32_t>& ids) { return absl::StrCat(absl::StrJoin(ids, "\n"), "\n"); };
  std::map<std::string, std::string> extra_files = {{"user_ids.txt", lines(ratings.user_ids)},
                                                    {"item_ids.txt", lines(ratings.item_ids)}};
  if (!item_names.empty()) {
    std::string& text = extra_files["item_names.txt"];
    for (const int32_t item : ratings.item_ids) {
      const auto name = item_names.find(item);
      absl::StrAppend(&text, name == item_names.end() ? "" : name->second, "\n");
    }
  }
  return exporting::ExportModel(estimator, TrainSpec(),
                                {.key = "predict", .inputs = {{"user_id", "user_id", {}}, {"item_id", "item_id", {}}}},
                                to, extra_files);
}

}  // namespace official::recommendation
