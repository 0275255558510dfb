// The ratings to train on: MovieLens, a ratings file of one's own, or ratings made by this program.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "official/recommendation/data/generated_ratings.h"
#include "official/recommendation/data/ratings.h"

namespace official::recommendation {

struct RatingsOptions {
  std::string dataset = "ml-1m";  // or ml-100k, ml-20m; case does not matter
  std::string data_dir;
  bool data_dir_given = false;  // true if the user chose data_dir: then no other data will do
  bool download_if_missing = true;
  std::string ratings_file;  // if not empty, the file (ratings_file.h) that is read instead of a data set
  // The directory on the web that holds <dataset>.zip.
  std::string mirror = "https://files.grouplens.org/datasets/movielens";
  int64_t skip_bad_records = 0;  // the number of lines that are not ratings and may be left out
};

struct LoadedRatings {
  Ratings ratings;
  bool generated = false;  // true if this program made them (generated_ratings.h), since the data set was not to be had
  std::string note = "";   // if generated, the reason, one line for the user
};

// Reads ratings.csv, ratings.dat, u.data or <dataset>.zip, the first there is, in data_dir/<dataset>/ or else in
// data_dir itself; downloads the zip into data_dir/<dataset>/ if there is none of them. If that fails, returns an error
// that says why (Unavailable, or NotFound without download_if_missing) where data_dir was given, else generated ratings
// of the data set's size. Lines and users that are left out are logged. InvalidArgument if there is no such data set,
// DataLoss if the file has more ratings than the data set, or fewer even with the lines that are left out. Other errors
// are those of ReadRatings and SplitRatings.
absl::StatusOr<LoadedRatings> LoadRatings(const RatingsOptions& options);

// Puts the ratings of a data set and the names of its items, as they are published, into data_dir/<dataset>/, where
// LoadRatings finds the ratings: ratings.csv and movies.csv, ratings.dat and movies.dat, or u.data and u.item. Files
// that are there stay. Downloads the archive, or takes the one in `from_dir` if that is not empty. Returns the paths of
// the two files. Says on stderr what it does. InvalidArgument if there is no such data set, DataLoss if an archive is
// not the published one; other errors of data::DownloadFiles.
struct MovieLensFiles {
  std::string ratings, item_names;
};
absl::StatusOr<MovieLensFiles> DownloadMovieLens(const RatingsOptions& options, const std::string& from_dir);

// Returns the numbers of users, items and ratings of a data set; InvalidArgument, with the known names, for any other
// name.
absl::StatusOr<GeneratorOptions> SizeOfDataset(const std::string& dataset);

}  // namespace official::recommendation
