// The network for programs that serve it.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "official/recommendation/data/item_names.h"
#include "official/recommendation/data/ratings.h"
#include "utils/export/serving_graph.h"
#include "utils/train/model.h"

namespace official::recommendation {

// Returns the graph of `model`, which is that of ncf_main, with the signature `predict`: inputs `user_id` and
// `item_id`, int32 [-1] of one size, users and items as training numbers them, from 0 on; output `rating` float32 [-1,
// 1], the scores. The official program has no export.
absl::StatusOr<exporting::ServingGraph> NcfServingGraph(const train::Model& model);

// Returns the files of an export, contents by name, with the numbers that users and items have in the ratings:
// user_ids.txt and item_ids.txt, one a line; if there are `item_names`, these are in item_names.txt.
std::map<std::string, std::string> IdFiles(const Ratings& ratings, const ItemNames& item_names);

}  // namespace official::recommendation
