// The ratings to train on: MovieLens, a ratings file of one's own, or ratings made by this program.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "official/recommendation/data/generated_ratings.h"
#include "official/recommendation/data/ratings.h"

namespace official::recommendation {

struct RatingsOptions {
  std::string dataset = "ml-1m";  // or ml-100k, ml-20m; in any case of letters
  std::string data_dir;
  bool data_dir_given = false;  // by the user: then no other data will do
  bool download_if_missing = true;
  bool generate = false;     // ratings made by this program, of the data set's size, in place of all others
  std::string ratings_file;  // if not empty, the file (ratings_file.h) that is read instead of a data set
  // Directory on the web that holds <dataset>.zip.
  std::string mirror = "https://files.grouplens.org/datasets/movielens";
};

struct LoadedRatings {
  Ratings ratings;
  bool generated = false;  // by this program (generated_ratings.h), since the data set was not to be had
  std::string note;        // then: why, one line for the user
};

// Reads ratings.csv, ratings.dat, u.data or <dataset>.zip, the first there is, in data_dir/<dataset>/ or else in
// data_dir itself; downloads the zip into data_dir/<dataset>/ if there is none of them. If that fails: an error that
// says why (Unavailable, or NotFound without download_if_missing) where data_dir was given, else generated ratings of
// the data set's size. InvalidArgument if there is no such data set, DataLoss if the file has another number of ratings
// than it. Errors of ReadRatings and SplitRatings.
absl::StatusOr<LoadedRatings> LoadRatings(const RatingsOptions& options);

// As many users, items and ratings as a data set has; InvalidArgument, with the names there are, if there is none of
// this name.
absl::StatusOr<GeneratorOptions> SizeOfDataset(const std::string& dataset);

}  // namespace official::recommendation
