// The names of items, from a list like MovieLens's list of films.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace official::recommendation {

// The names of items, UTF-8, by the numbers that the ratings use for the items.
using ItemNames = absl::flat_hash_map<int32_t, std::string>;

// Reads a file with a line for each item: its number, its name and any further fields. The separator is "|" (u.item of
// MovieLens 100K), "::" (movies.dat of MovieLens 1M), a comma (movies.csv of MovieLens 20M; there names may be quoted)
// or a tab; the first line that is not blank tells which, and may be a header. A file that is not UTF-8 is read as
// ISO-8859-1. Control characters are left out. DataLoss, with file and line, for any other line, for a file without
// items and for one of more than 64 MiB. Errors as in utils/files.
absl::StatusOr<ItemNames> ReadItemNames(const std::string& path);

}  // namespace official::recommendation
