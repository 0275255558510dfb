#include "utils/train/evaluations/evaluation_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/logs/json.h"

namespace official::train {

std::string SavingDict(int64_t step, absl::Span<const std::pair<std::string, double>> results) {
  const auto append = [step](std::string* out, const auto& result) {
    const auto& [name, value] = result;
    absl::StrAppend(out, name, " = ",
                    name == "global_step" ? absl::StrCat(step) : logs::FormatFloat(static_cast<float>(value)));
  };
  return absl::StrCat("Saving dict for global step ", step, ": ", absl::StrJoin(results, ", ", append));
}

}  // namespace official::train
