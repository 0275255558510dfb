#include "utils/train/short_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::train {

std::string ShortList(const std::vector<std::string>& names) {
  const size_t shown = std::min<size_t>(names.size(), 2);
  std::string text = absl::StrJoin(names.begin(), names.begin() + shown, ", ");
  if (names.size() > shown) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

}  // namespace official::train
