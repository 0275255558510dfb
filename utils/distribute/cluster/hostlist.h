// Slurm's short form for lists of hosts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace official::distribute {

// Returns the words of a list that commas separate, in which brackets stand for numbers, with as many digits as the
// first of a range: "node[08-10,12],login" is node08, node09, node10, node12, login; a word with two brackets stands
// for all pairs. Brackets with a colon, as IPv6 addresses have them, are left as they are. InvalidArgument for an empty
// list or word, an open bracket, what is no range, and more than 8192 words.
absl::StatusOr<std::vector<std::string>> ExpandHostlist(absl::string_view list);

}  // namespace official::distribute
