// The trained network for programs that serve it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "official/recommendation/data/item_names.h"
#include "official/recommendation/data/ratings.h"
#include "utils/export/destination.h"
#include "utils/train/estimator.h"

namespace official::recommendation {

// Writes <export_dir>/<seconds since 1970>/ with the signature `predict`: inputs `user_id` and `item_id`, int32 [-1] of
// one size, users and items as training numbers them, from 0 on; output `rating` float32 [-1, 1], the scores. Their
// numbers in the ratings are in assets.extra/user_ids.txt and item_ids.txt, one a line; if there are `item_names`,
// these are in item_names.txt. The official program has no export. Returns the path. NotFound if nothing was trained.
absl::StatusOr<std::string> ExportTrained(train::Estimator& estimator, const Ratings& ratings,
                                          const ItemNames& item_names, const exporting::Destination& to);

}  // namespace official::recommendation
