// The trained NeuMF for serve_main.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "official/serve/servable/served_run.h"

namespace official::recommendation {

// Opens the latest checkpoint of a run of ncf_main, with the ratings that it was trained on, which say what a user has
// rated. Signature `recommend`: input `user` int32 [], a number in the ratings; outputs `items` int32 [n], the items
// that --predict recommends, best first, and `ratings` float32 [n], their scores. n is ServedRun::top_k, or less where
// the user has rated nearly all. DataLoss if flags.txt does not have the network's flags; other errors as those of
// --predict.
absl::StatusOr<std::unique_ptr<serve::Servable>> OpenServable(const serve::ServedRun& run);

}  // namespace official::recommendation
