#include "official/recommendation/ncf_export.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/recommendation/ncf_input.h"

namespace official::recommendation {

absl::StatusOr<exporting::ServingGraph> NcfServingGraph(const train::Model& model) {
  return exporting::BuildServingGraph(
      model, TrainSpec(), {.key = "predict", .inputs = {{"user_id", "user_id", {}}, {"item_id", "item_id", {}}}});
}

std::map<std::string, std::string> IdFiles(const Ratings& ratings, const ItemNames& item_names) {
  const auto lines = [](const std::vector<int32_t>& ids) { return absl::StrCat(absl::StrJoin(ids, "\n"), "\n"); };
  std::map<std::string, std::string> files = {{"user_ids.txt", lines(ratings.user_ids)},
                                              {"item_ids.txt", lines(ratings.item_ids)}};
  if (!item_names.empty()) {
    std::string& text = files["item_names.txt"];
    for (const int32_t item : ratings.item_ids) {
      const auto name = item_names.find(item);
      absl::StrAppend(&text, name == item_names.end() ? "" : name->second, "\n");
    }
  }
  return files;
}

}  // namespace official::recommendation
