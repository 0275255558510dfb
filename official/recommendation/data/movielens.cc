#include "official/recommendation/data/movielens.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/recommendation/data/ratings_file.h"
#include "official/recommendation/data/zip_member.h"
#include "utils/compute/core/status.h"
#include "utils/data/download.h"
#include "utils/data/records/bad_records.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::recommendation {
namespace {

struct MovieLens {
  const char* name;
  GeneratorOptions size;
  int64_t zip_bytes;
  const char* zip_sha256;  // of the files with the MD5 sums that GroupLens publishes
  const char* ratings;     // the names of its members
  const char* item_names;
};
constexpr MovieLens kDatasets[] = {
    {"ml-100k",
     {.num_users = 943, .num_items = 1682, .num_ratings = 100000},
     4924029,
     "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
     "u.data",
     "u.item"},
    {"ml-1m",
     {},
     5917549,
     "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
     "ratings.dat",
     "movies.dat"},
    {"ml-20m",
     {.num_users = 138493, .num_items = 26744, .num_ratings = 20000263},
     198702078,
     "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
     "ratings.csv",
     "movies.csv"},
};

absl::StatusOr<MovieLens> FindDataset(const std::string& name) {
  for (const MovieLens& dataset : kDatasets) {
    if (absl::AsciiStrToLower(name) == dataset.name) return dataset;
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "there is no dataset \"%s\": --dataset=<ml-100k|ml-1m|ml-20m>, or --ratings_file for another one", name));
}

// The file as it lies in data_dir; empty if it does not.
std::string FindFile(const MovieLens& dataset, const std::string& data_dir) {
  for (const std::string& directory : {files::JoinPath(data_dir, dataset.name), data_dir}) {
    for (const std::string& name : {std::string("ratings.csv"), std::string("ratings.dat"), std::string("u.data"),
                                    absl::StrCat(dataset.name, ".zip")}) {
      const std::string path = files::JoinPath(directory, name);
      if (files::Exists(path)) return path;
    }
  }
  return "";
}

// The archive, and where it is put.
data::RemoteFile ArchiveOf(const MovieLens& dataset, const RatingsOptions& options) {
  const std::string name = absl::StrCat(dataset.name, ".zip");
  return {.path = files::JoinPath(files::JoinPath(options.data_dir, dataset.name), name),
          .urls = {absl::StrCat(options.mirror, "/", name)},
          .num_bytes = dataset.zip_bytes,
          .sha256 = dataset.zip_sha256};
}

// Where it lies, after a download if need be.
absl::StatusOr<std::string> ObtainFile(const MovieLens& dataset, const RatingsOptions& options) {
  const std::string path = FindFile(dataset, options.data_dir);
  if (!path.empty()) return path;
  const std::string zip = absl::StrCat(dataset.name, ".zip");
  const std::string missing =
      files::Exists(options.data_dir)
          ? absl::StrFormat("%s has none of %s, ratings.csv, ratings.dat and u.data", options.data_dir, zip)
          : absl::StrFormat("there is no directory %s with %s", options.data_dir, zip);
  if (!options.download_if_missing) {
    return absl::NotFoundError(absl::StrCat(missing, ", and --download_if_missing is false"));
  }
  const data::RemoteFile remote = ArchiveOf(dataset, options);
  const absl::Status status = data::DownloadFiles({remote});
  if (status.ok()) return remote.path;
  return absl::Status(status.code(), absl::StrCat(missing, ": ", status.message()));
}

// Leaves out as many bad lines as may be.
absl::StatusOr<std::vector<Rating>> ReadGoodRatings(const std::string& path, data::BadRecords& bad) {
  absl::StatusOr<std::vector<Rating>> ratings = ReadRatings(path, [&](int64_t line, const absl::Status& error) {
    return bad.Skip(absl::StrCat(path, " line ", line), error);
  });
  if (ratings.ok()) bad.Report();
  return ratings;
}

absl::StatusOr<std::vector<Rating>> ReadDataset(const MovieLens& dataset, const std::string& path,
                                                data::BadRecords& bad) {
  ASSIGN_OR_RETURN(std::vector<Rating> ratings, ReadGoodRatings(path, bad));
  // A line that was left out may have been one of its ratings, or a superfluous one.
  const auto num_ratings = static_cast<int64_t>(ratings.size());
  const bool may_be_all = num_ratings + bad.count() >= dataset.size.num_ratings;
  if (num_ratings <= dataset.size.num_ratings && may_be_all) return ratings;
  return absl::DataLossError(
      absl::StrFormat("%s has %d ratings, but %s has %d: is it cut? Give your own ratings with --ratings_file", path,
                      ratings.size(), dataset.name, dataset.size.num_ratings));
}

absl::StatusOr<Ratings> SplitFile(const std::string& path, absl::StatusOr<std::vector<Rating>> ratings) {
  if (!ratings.ok()) return ratings.status();
  absl::StatusOr<Ratings> split = SplitRatings(*std::move(ratings));
  if (!split.ok()) return absl::Status(split.status().code(), absl::StrCat(path, ": ", split.status().message()));
  if (split->num_left_out_users > 0) {
    LOG(WARNING) << absl::StrFormat("%s: users with fewer than %d ratings are left out: %d of %d, with %d ratings",
                                    path, kFewestRatings, split->num_left_out_users,
                                    split->num_left_out_users + split->num_users(), split->num_left_out_ratings);
  }
  return split;
}

}  // namespace

absl::StatusOr<GeneratorOptions> SizeOfDataset(const std::string& dataset) {
  ASSIGN_OR_RETURN(const MovieLens found, FindDataset(dataset));
  return found.size;
}

absl::StatusOr<MovieLensFiles> DownloadMovieLens(const RatingsOptions& options, const std::string& from_dir) {
  ASSIGN_OR_RETURN(const MovieLens dataset, FindDataset(options.dataset));
  const std::string directory = files::JoinPath(options.data_dir, dataset.name);
  const MovieLensFiles found = {.ratings = files::JoinPath(directory, dataset.ratings),
                                .item_names = files::JoinPath(directory, dataset.item_names)};
  if (files::Exists(found.ratings) && files::Exists(found.item_names)) return found;
  const data::RemoteFile archive = ArchiveOf(dataset, options);
  const bool was_there = files::Exists(archive.path);  // ncf_main has downloaded it
  RETURN_IF_ERROR(data::DownloadFiles({archive}, {.from_dir = from_dir}));
  LOG(INFO) << "unpacking " << archive.path;
  for (const auto& [name, path] :
       {std::pair(dataset.ratings, found.ratings), std::pair(dataset.item_names, found.item_names)}) {
    if (files::Exists(path)) continue;
    ASSIGN_OR_RETURN(ZipMember member, ZipMember::Open(archive.path, {name}));
    RETURN_IF_ERROR(member.Extract(path));
  }
  RETURN_IF_ERROR(files::SyncDirectory(directory));
  if (!was_there) RETURN_IF_ERROR(files::RemoveFile(archive.path));
  return found;
}

absl::StatusOr<LoadedRatings> LoadRatings(const RatingsOptions& options) {
  LoadedRatings loaded;
  data::BadRecords bad(options.skip_bad_records);
  if (!options.ratings_file.empty()) {
    ASSIGN_OR_RETURN(loaded.ratings, SplitFile(options.ratings_file, ReadGoodRatings(options.ratings_file, bad)));
    return loaded;
  }
  ASSIGN_OR_RETURN(const MovieLens dataset, FindDataset(options.dataset));
  const absl::StatusOr<std::string> path = ObtainFile(dataset, options);
  if (path.ok()) {
    ASSIGN_OR_RETURN(loaded.ratings, SplitFile(*path, ReadDataset(dataset, *path, bad)));
    return loaded;
  }
  if (options.data_dir_given) {
    return absl::Status(path.status().code(),
                        absl::StrFormat("%s; put %s.zip of https://grouplens.org/datasets/movielens there, or measure "
                                        "the speed without ratings with --use_synthetic_data",
                                        path.status().message(), dataset.name));
  }
  loaded.note = absl::StrFormat("the ratings are made by this program, as many as %s has: %s", dataset.name,
                                path.status().message());
  const logs::TaskProgress progress({.title = "generating ratings"});
  ASSIGN_OR_RETURN(std::vector<Rating> generated, GenerateRatings(dataset.size));
  ASSIGN_OR_RETURN(loaded.ratings, SplitRatings(std::move(generated)));
  loaded.generated = true;
  return loaded;
}

}  // namespace official::recommendation
