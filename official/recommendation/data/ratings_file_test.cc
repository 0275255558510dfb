#include "official/recommendation/data/ratings_file.h"

#include <zip.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace official::recommendation {
namespace {

using Catch::Contains;

std::string Path(const std::string& name) { return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name); }

std::string Write(const std::string& name, const std::string& text) {
  std::ofstream(Path(name), std::ios::binary) << text;
  return Path(name);
}

std::string WriteZip(const std::string& name, const std::vector<std::pair<std::string, std::string>>& members) {
  std::filesystem::remove(Path(name));
  zip_t* const zip = zip_open(Path(name).c_str(), ZIP_CREATE, nullptr);
  for (const auto& [member, text] : members) {
    zip_file_add(zip, member.c_str(), zip_source_buffer(zip, text.data(), text.size(), 0), ZIP_FL_ENC_UTF_8);
  }
  REQUIRE(zip_close(zip) == 0);
  return Path(name);
}

// What is said about a file, without its name.
std::string ErrorOf(const std::string& text) {
  const std::string path = Write("bad.csv", text);
  const absl::Status status = ReadRatings(path).status();
  CHECK(absl::IsDataLoss(status));
  const std::string message(status.message());
  REQUIRE_THAT(message, Catch::StartsWith(path) && !Contains("\n"));
  return message.substr(path.size() + 1);
}

const std::vector<Rating> kTwo = {{1, 1193, 978300760}, {2147483647, 661, -5}};

TEST_CASE("ReadRatings reads MovieLens's files and what has other separators") {
  const std::string text =
      GENERATE(as<std::string>(), "1::1193::5::978300760\n2147483647::661::3::-5\n",
               "userId,movieId,rating,timestamp\n1,1193,3.5,978300760\n2147483647,661,-1e1,-5\n",
               "1,1193,3.5,978300760\r\n2147483647,661,0,-5\r\n",
               "user_id::item_id::rating::timestamp\n1::1193::5::978300760\n2147483647::661::3::-5",
               "1\t1193\t5\t978300760\n2147483647\t661\t3.5\t-5\n",
               "user id\titem id\trating\ttimestamp\r\n1\t1193\t5\t978300760\r\n2147483647\t661\t3\t-5\r\n",
               "user id,item id,rating,time stamp\n1,1193,5,978300760\n2147483647,661,3,-5\n",
               "user;item;rating;timestamp\n1;1193;5;978300760\n2147483647;661;3;-5\n",
               "1 1193 5 978300760\n2147483647 661 3 -5\n",
               "\xef\xbb\xbf"
               "1,1193,3.5,978300760\n2147483647,661,0,-5\n",
               "\xef\xbb\xbf"
               "user,item,rating,timestamp\r\n1,1193,3.5,978300760\r\n2147483647,661,0,-5\r\n");
  CHECK(ReadRatings(Write("ratings", text)).value() == kTwo);
}

TEST_CASE("Numbers in any form are read") {
  const std::string text =
      "0000000001,2,3,4\n1,2,3.,4\r\n1,2,.5,4\n1,2,1234567890.25,4\n1,2,0.1234567890,4\n1,2,1e3,4\n"
      "1,2147483647,3,999999999999999999\n00000000001,2,3,9223372036854775807\n";
  std::vector<Rating> expected(6, {1, 2, 4});
  expected.push_back({1, 2147483647, 999999999999999999});
  expected.push_back({1, 2, 9223372036854775807});
  CHECK(ReadRatings(Write("forms.csv", text)).value() == expected);
}

TEST_CASE("ReadRatings reads the one ratings file in a zip archive") {
  const std::string path =
      WriteZip("data.zip", {{"ml-1m/", ""},
                            {"ml-1m/movies.dat", "1::Toy Story (1995)::Animation\n"},
                            {"ml-1m/ratings.dat", "1::1193::5::978300760\n2147483647::661::3::-5\n"}});
  CHECK(ReadRatings(path).value() == kTwo);
}

TEST_CASE("Lines that are cut by the reader's buffer are put together again") {
  std::string text;
  std::vector<Rating> expected;
  for (int i = 1; i < 100000; ++i) {
    expected.push_back({i, 2 * i, 1000000000 + i});
    absl::StrAppend(&text, i, ",", 2 * i, ",4.5,", 1000000000 + i, "\n");
  }
  REQUIRE(text.size() > 2 << 20);
  CHECK(ReadRatings(Write("long.csv", text)).value() == expected);
  // Whatever the size of the pieces.
  size_t offset = 0;
  const auto read = [&](char* buffer, int64_t) -> absl::StatusOr<int64_t> {
    const size_t size = std::min<size_t>(7, text.size() - offset);
    text.copy(buffer, size, offset);
    offset += size;
    return size;
  };
  CHECK(ParseRatings("pieces", read).value() == expected);
}

const std::string kFirst =
    "line 1: expected four fields, user, item, rating and timestamp, with a tab, a comma, ::, a semicolon or a space "
    "between them, found ";
const std::string kComma = "line 2: expected user, item, rating and timestamp, with , between them as in line 1, found";

TEST_CASE("Lines that are not ratings are refused with their number and text") {
  const auto [text, message] = GENERATE(table<std::string, std::string>({
      // Separators
      {"1|2|3|4\n", kFirst + "\"1|2|3|4\""},
      {"1\t2\t3\n", kFirst + "\"1\\t2\\t3\""},
      {"1  2 3 4\n", kFirst + "\"1  2 3 4\""},
      {"1 2 3 4\n1\t2\t3\t4\n",
       "line 2: expected user, item, rating and timestamp, with a space between them as in line 1, found "
       "\"1\\t2\\t3\\t4\""},
      {"1\t2\t3\t4\n1 2 3 4\n",
       "line 2: expected user, item, rating and timestamp, with a tab between them as in line 1, found \"1 2 3 4\""},
      {"1,2,3,4\n1::2::3::4\n", kComma + " \"1::2::3::4\""},
      {"1::2::3::4\n1,2,3,4\n",
       "line 2: expected user, item, rating and timestamp, with :: between them as in line 1, found \"1,2,3,4\""},
      // The number of fields
      {"1,2,3,4,5\n", kFirst + "\"1,2,3,4,5\""},
      {"1,2,3,4\n\n1,2,3,4\n", kComma + " an empty line"},
      {"1,2,3,4\n1,2,3", kComma + " \"1,2,3\", where the file ends"},
      {"1,2,3,4\n1,2,3,", "line 2: timestamp \"\" is not a whole number of seconds, where the file ends"},
      // Headers
      {"user,item,rating,timestamp\nuser,item,rating,timestamp\n",
       "line 2: expected numbers, found \"user,item,rating,timestamp\": only the first line may be a header"},
      {"user,item,rating\n", kFirst + "\"user,item,rating\""},
      {"1,2,3,4\n\xef\xbb\xbf"
       "1,2,3,4\n",
       "line 2: user \"\xef\xbb\xbf"
       "1\" is not in 1 to 2147483647: number users from 1 on"},
      // Users and items
      {"1,2,3,4\n0,2,3,4\n", "line 2: user \"0\" is not in 1 to 2147483647: number users from 1 on"},
      {"1,2,3,4\n1,0,3,4\n", "line 2: item \"0\" is not in 1 to 2147483647: number items from 1 on"},
      {"-1,2,3,4\n", "line 1: user \"-1\" is not in 1 to 2147483647: number users from 1 on"},
      {"1,2147483648,3,4\n", "line 1: item \"2147483648\" is not in 1 to 2147483647: number items from 1 on"},
      {"18446744073709551617,2,3,4\n",
       "line 1: user \"18446744073709551617\" is not in 1 to 2147483647: number users from 1 on"},
      {"1.0,2,3,4\n", "line 1: user \"1.0\" is not in 1 to 2147483647: number users from 1 on"},
      {"1, 2,3,4\n", "line 1: item \" 2\" is not in 1 to 2147483647: number items from 1 on"},
      {"1,2,3,4\n3000000000,2,3,4\n", "line 2: user \"3000000000\" is not in 1 to 2147483647: number users from 1 on"},
      // The others
      {"1,2,good,4\n", "line 1: rating \"good\" is not a number"},
      {"1,2,nan,4\n", "line 1: rating \"nan\" is not a number"},
      {"1,2,3,4.5\n", "line 1: timestamp \"4.5\" is not a whole number of seconds"},
      {"1,2,3,\x01\xff\n", "line 1: timestamp \"\\x01\xff\" is not a whole number of seconds"},
      {std::string(2000, 'x'), "line 1: has more than 1024 characters: is this a ratings file?"},
      {"1,2,3,4\n" + std::string(1500, ',') + "\n", "line 2: has more than 1024 characters: is this a ratings file?"},
      {"", "has no ratings"},
      {"user,item,rating,timestamp\n", "has no ratings"},
  }));
  CHECK(ErrorOf(text) == message);
}

TEST_CASE("Archives that are damaged or lead elsewhere are refused") {
  const std::string good = "1,2,3,4\n";
  const auto error = [](const std::string& path) {
    const absl::Status status = ReadRatings(path).status();
    CHECK(absl::IsDataLoss(status));
    return std::string(status.message());
  };
  for (const std::string name : {"../ratings.csv", "a/../../ratings.csv", "/etc/ratings.csv", "..", "a\\..\\b"}) {
    CHECK_THAT(error(WriteZip("out.zip", {{"ratings.csv", good}, {name, good}})),
               Contains(Path("out.zip") + " has a member that lies outside of it: "));
  }
  CHECK(error(WriteZip("two.zip", {{"a/ratings.csv", good}, {"b/ratings.dat", good}})) ==
        Path("two.zip") + " has two files of which only one can be read: a/ratings.csv and b/ratings.dat");
  CHECK(error(WriteZip("none.zip", {{"movies.csv", good}})) ==
        Path("none.zip") + " has no ratings.csv, no ratings.dat and no u.data");
  CHECK(error(WriteZip("bad.zip", {{"x/ratings.csv", "1,2\n"}})) ==
        Path("bad.zip") + "/x/ratings.csv " + kFirst + "\"1,2\"");
  CHECK_THAT(error(Write("no.zip", good)), Contains("no.zip is not a readable zip archive: "));
  CHECK_THAT(error(Write("page.zip", "<html>404</html>")), Contains(" (the file is an HTML page)"));

  const std::string whole = WriteZip("whole.zip", {{"ratings.csv", good}});
  std::string bytes(std::filesystem::file_size(whole), '\0');
  std::ifstream(whole, std::ios::binary).read(bytes.data(), bytes.size());
  CHECK_THAT(error(Write("cut.zip", bytes.substr(0, bytes.size() / 2))),
             Contains("cut.zip is not a readable zip archive"));
  const size_t content = bytes.find("1,2,3,4");
  REQUIRE(content != std::string::npos);  // so short a text is stored, not deflated
  bytes[content] = '7';
  CHECK_THAT(error(Write("changed.zip", bytes)), Contains("changed.zip/ratings.csv: CRC error"));
}

TEST_CASE("Files of other kinds are called what they are") {
  CHECK(ErrorOf("<!DOCTYPE html>\n<html>\n") == "has no ratings: the file is an HTML page");
  CHECK(ErrorOf("\x1f\x8b\x08 and so on") == "has no ratings: the file is gzip-compressed");
  // An archive under any name.
  const std::string zip =
      WriteZip("named.zip", {{"ml-100k/u.data", "1\t1193\t5\t978300760\n2147483647\t661\t3\t-5\n"}});
  std::filesystem::rename(zip, Path("unnamed"));
  CHECK(ReadRatings(Path("unnamed")).value() == kTwo);
}

TEST_CASE("A file that is not there is NotFound") {
  CHECK(absl::IsNotFound(ReadRatings(Path("absent.csv")).status()));
  CHECK(absl::IsNotFound(ReadRatings(Path("absent.zip")).status()));
}

}  // namespace
}  // namespace official::recommendation
