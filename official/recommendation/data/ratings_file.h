// Ratings files: text with a rating a line, of four fields: user, item, rating, timestamp. The separator is a comma
// (ratings.csv of MovieLens 20M), "::" (ratings.dat of MovieLens 1M), a tab (u.data of MovieLens 100K), a semicolon or
// a blank; the first line tells which.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "official/recommendation/data/ratings.h"

namespace official::recommendation {

// Reads a ratings file, or a zip archive's only member called ratings.csv, ratings.dat or u.data. The first line may be
// a header: four fields none of which is a number. Users and items are numbers from 1 to 2^31 - 1, the rating is any
// number, the timestamp a whole one. Lines may end in CR LF, and a byte order mark may begin the file. A last line
// without a line end is read too, with a warning that the file may have been cut. DataLoss, with file and line, what is
// there and what should be, for any other line, for a file without ratings, and for an archive that is damaged, has
// names that lead out of it ("../"), none or several such members, or one of more than 4 GiB. Other errors as in
// utils/files.
absl::StatusOr<std::vector<Rating>> ReadRatings(const std::string& path);

// Does the same, but asks `on_bad_line` about the error of each bad line (from 1): if it returns OK, the line is left
// out, else its error ends the reading.
using BadLineFn = absl::FunctionRef<absl::Status(int64_t line, const absl::Status& error)>;
absl::StatusOr<std::vector<Rating>> ReadRatings(const std::string& path, BadLineFn on_bad_line);

// Reads a file in this way, keeps none of its ratings, and returns their number.
absl::StatusOr<int64_t> CountRatings(const std::string& path, BadLineFn on_bad_line);

// Returns true if `text`, the beginning of a file, has ratings in at least half of its whole lines.
bool LooksLikeRatings(absl::string_view text);

// Does what ReadRatings does from any source of bytes. `name` is its name in messages. `read` gives up to `size` more
// bytes, 0 at the end. `num_bytes` is their total number, where that is known.
using ReadFn = absl::FunctionRef<absl::StatusOr<int64_t>(char* buffer, int64_t size)>;
absl::StatusOr<std::vector<Rating>> ParseRatings(const std::string& name, ReadFn read, int64_t num_bytes = 0);

}  // namespace official::recommendation
