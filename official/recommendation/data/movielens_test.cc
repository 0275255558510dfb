#include "official/recommendation/data/movielens.h"

#include <zip.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/logs/log.h"

namespace official::recommendation {
namespace {

using Catch::Contains;

// An empty data directory.
class Fixture {
 public:
  Fixture() {
    static int number = 0;
    // No network: a port where nobody listens.
    options_.mirror = "http://127.0.0.1:1/movielens";
    options_.data_dir = absl::StrCat(std::getenv("TEST_TMPDIR"), "/movielens", ++number);
    options_.data_dir_given = true;
    std::filesystem::remove_all(options_.data_dir);
    std::filesystem::create_directories(options_.data_dir + "/ml-1m");
    logs::InitLogging({.format = logs::LogFormat::kNone});
  }

 protected:
  std::string Path(const std::string& name) const { return options_.data_dir + "/" + name; }
  void Write(const std::string& name, const std::string& text) const { std::ofstream(Path(name)) << text; }
  absl::Status Error() const { return LoadRatings(options_).status(); }

  RatingsOptions options_;
};

TEST_CASE_METHOD(Fixture, "LoadRatings finds a data set in its own directory or in the one above") {
  REQUIRE(WriteRatings(Path(GENERATE("ml-1m/ratings.csv", "ratings.csv")), GenerateRatings({}).value()).ok());
  options_.dataset = "ML-1M";
  const LoadedRatings loaded = LoadRatings(options_).value();
  CHECK(loaded.ratings.num_users() == 6040);
  CHECK(loaded.ratings.num_items() == 3706);
  CHECK(loaded.ratings.num_positives() == 994169);  // official preprocessing
  CHECK_FALSE(loaded.generated);
}

TEST_CASE_METHOD(Fixture, "MovieLens 100K is u.data, as it is published or in its archive") {
  options_.dataset = "ml-100k";
  std::filesystem::create_directories(Path("ml-100k"));
  const std::vector<Rating> generated =
      GenerateRatings({.num_users = 943, .num_items = 1682, .num_ratings = 100000}).value();
  std::string text;
  for (const Rating& rating : generated) {
    absl::StrAppend(&text, rating.user, "\t", rating.item, "\t3\t", rating.timestamp, "\n");
  }
  Write("ml-100k/u.data", text);
  const Ratings ratings = LoadRatings(options_).value().ratings;
  CHECK(ratings.num_users() == 943);
  CHECK(ratings.num_items() == 1682);
  CHECK(ratings.num_positives() == 100000 - 943);
}

TEST_CASE_METHOD(Fixture, "A data set with another number of ratings is refused") {
  Write("ml-1m/ratings.dat", "1::2::3::4\n");
  CHECK(absl::IsDataLoss(Error()));
  CHECK(Error().message() == Path("ml-1m/ratings.dat") +
                                 " has 1 ratings, but ml-1m has 1000209: is it cut? Give your own "
                                 "ratings with --ratings_file");
}

TEST_CASE_METHOD(Fixture, "A ratings file is read instead of a data set") {
  options_.ratings_file = Path("mine.csv");
  CHECK(absl::IsNotFound(Error()));
  Write("mine.csv", "1,2,3,4\n");
  CHECK(absl::IsInvalidArgument(Error()));
  CHECK_THAT(std::string(Error().message()), Contains(Path("mine.csv") + ": none of the 1 users has 20 ratings"));
  Write("mine.csv", "1,2,3\n");
  CHECK(absl::IsDataLoss(Error()));
  std::string text;
  for (int i = 1; i <= 20; ++i) absl::StrAppend(&text, "7,", i, ",1,", i, "\n");
  Write("mine.csv", text);
  {
    logs::CapturedLog log(logs::LogFormat::kSimple);
    CHECK(LoadRatings(options_).value().ratings.num_positives() == 19);
    CHECK(log.Text().empty());
  }
  Write("mine.csv", "1,2,3,4\n" + text + "3,1,1,1\n3,2,1,1\n");
  logs::CapturedLog log(logs::LogFormat::kSimple);
  CHECK(LoadRatings(options_).value().ratings.user_ids == std::vector<int32_t>{7});
  CHECK_THAT(log.Text(), Contains("W ") && Contains(Path("mine.csv") + ": users with fewer than 20 ratings are "
                                                                       "left out: 2 of 3, with 3 ratings\n"));
}

TEST_CASE_METHOD(Fixture, "As many bad lines are left out as may be") {
  std::string text;
  for (int item = 1; item <= 20; ++item) absl::StrAppend(&text, "7,", item, ",3,", item, "\n");
  Write("mine.csv", "7,0,3,4\n" + text + "7,8,3\n");
  options_.ratings_file = Path("mine.csv");
  options_.skip_bad_records = 1;
  CHECK(absl::IsDataLoss(Error()));
  CHECK_THAT(std::string(Error().message()),
             Contains("mine.csv line 22: expected user, item") && Contains("more than --skip_bad_records=1 records"));
  options_.skip_bad_records = 2;
  const Ratings ratings = LoadRatings(options_).value().ratings;
  CHECK(ratings.user_ids == std::vector<int32_t>{7});
  CHECK(ratings.num_items() == 20);

  // A line that is left out is one of the data set's.
  const std::vector<Rating> generated =
      GenerateRatings({.num_users = 943, .num_items = 1682, .num_ratings = 100000}).value();
  std::filesystem::create_directories(Path("ml-100k"));
  REQUIRE(WriteRatings(Path("ml-100k/ratings.csv"), generated).ok());
  std::fstream file(Path("ml-100k/ratings.csv"));
  std::string header;
  std::getline(file, header);
  file.seekp(header.size() + 1);
  file << "x";
  file.close();
  options_.ratings_file = "";
  options_.dataset = "ml-100k";
  CHECK(LoadRatings(options_).value().ratings.num_users() == 943);
  // So may one be that is superfluous, but a rating that is superfluous may not.
  std::ofstream(Path("ml-100k/ratings.csv"), std::ios::app) << "\n";
  CHECK(LoadRatings(options_).value().ratings.num_users() == 943);
  std::ofstream(Path("ml-100k/ratings.csv"), std::ios::app) << "1,2,3,4\n1,2,3,4\n";
  CHECK(absl::IsDataLoss(Error()));
  CHECK_THAT(std::string(Error().message()), Contains("has 100001 ratings, but ml-100k has 100000"));
}

TEST_CASE_METHOD(Fixture, "An archive is unpacked where LoadRatings looks, with the names of the films") {
  options_.dataset = "ML-100K";
  const std::string directory = Path("ml-100k");
  const auto download = [&](const std::string& from_dir) { return DownloadMovieLens(options_, from_dir); };
  CHECK(absl::IsUnavailable(download("").status()));
  CHECK(absl::IsNotFound(download(Path("usb")).status()));
  std::filesystem::create_directories(Path("usb"));
  Write("usb/ml-100k.zip", "another");
  CHECK(absl::IsDataLoss(download(Path("usb")).status()));
  CHECK_FALSE(std::filesystem::exists(directory));

  // An archive under its name has been verified when it got it.
  std::filesystem::create_directories(directory);
  zip_t* const zip = zip_open(Path("ml-100k/ml-100k.zip").c_str(), ZIP_CREATE, nullptr);
  for (const auto& [member, text] :
       {std::pair("ml-100k/u.data", "1\t2\t3\t4\n"), std::pair("ml-100k/u.item", "2|Film\n")}) {
    zip_file_add(zip, member, zip_source_buffer(zip, text, std::strlen(text), 0), ZIP_FL_ENC_UTF_8);
  }
  REQUIRE(zip_close(zip) == 0);
  const MovieLensFiles found = download("").value();
  CHECK(found.ratings == directory + "/u.data");
  CHECK(found.item_names == directory + "/u.item");
  CHECK(files::ReadFile(found.ratings, 100).value() == "1\t2\t3\t4\n");
  CHECK(files::ReadFile(found.item_names, 100).value() == "2|Film\n");
  CHECK(std::filesystem::exists(directory + "/ml-100k.zip"));
  std::filesystem::remove(directory + "/ml-100k.zip");
  CHECK(download("").value().ratings == found.ratings);  // what is there stays
}

TEST_CASE_METHOD(Fixture, "A data set that does not exist is an error that names those that do") {
  options_.dataset = "ml-2m";
  CHECK(absl::IsInvalidArgument(Error()));
  CHECK(Error().message() ==
        "there is no dataset \"ml-2m\": --dataset=<ml-100k|ml-1m|ml-20m>, or --ratings_file for another one");
}

TEST_CASE_METHOD(Fixture, "A directory that was asked for and has no such files is an error with the reason") {
  CHECK(absl::IsUnavailable(Error()));
  CHECK_THAT(
      std::string(Error().message()),
      Contains(options_.data_dir + " has none of ml-1m.zip, ratings.csv, ratings.dat and u.data: cannot download ") &&
          Contains("/ml-1m.zip: 127.0.0.1:1: ") && Contains("; put ml-1m.zip of https://grouplens.org") &&
          Contains("--use_synthetic_data") && !Contains("\n"));
  options_.download_if_missing = false;
  CHECK(absl::IsNotFound(Error()));
  CHECK_THAT(std::string(Error().message()), Contains("--download_if_missing is false"));
}

TEST_CASE_METHOD(Fixture, "A mistyped directory is called missing, and is not made") {
  std::filesystem::remove_all(options_.data_dir);
  CHECK(absl::IsUnavailable(Error()));
  CHECK_THAT(std::string(Error().message()),
             Contains("there is no directory " + options_.data_dir + " with ml-1m.zip: cannot download "));
  CHECK_FALSE(std::filesystem::exists(options_.data_dir));
}

TEST_CASE_METHOD(Fixture, "Else ratings are generated, and a note says why") {
  options_.data_dir_given = false;
  logs::CapturedTasks log;
  const LoadedRatings loaded = LoadRatings(options_).value();
  CHECK_THAT(log.Text(), Contains("generating ratings"));
  CHECK(loaded.generated);
  CHECK_THAT(loaded.note, Contains("made by this program, as many as ml-1m has") && Contains("has none of ml-1m.zip"));
  CHECK(loaded.ratings.num_users() == 6040);
  CHECK(loaded.ratings.num_positives() == 994169);
  // But not in place of a file that is there and damaged.
  Write("ml-1m/ratings.csv", "1;2\n");
  CHECK(absl::IsDataLoss(Error()));
}

TEST_CASE("The real files, where there are some", "[movielens]") {
  const char* directory = std::getenv("OFFICIAL_MOVIELENS_DIR");
  if (directory == nullptr) return;
  RatingsOptions options;
  options.data_dir = directory;
  options.data_dir_given = true;
  const Ratings ratings = LoadRatings(options).value().ratings;
  CHECK(ratings.num_users() == 6040);
  CHECK(ratings.num_items() == 3706);
  CHECK(ratings.num_positives() == 994169);
}

}  // namespace
}  // namespace official::recommendation
