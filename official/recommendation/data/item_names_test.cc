#include "official/recommendation/data/item_names.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace official::recommendation {
namespace {

using Catch::Contains;

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST_CASE("The lists of films of every MovieLens are read") {
  SECTION("u.item, in ISO-8859-1") {
    const ItemNames names = ReadItemNames(Write("u.item",
                                                "1|Toy Story (1995)|01-Jan-1995||http://us.imdb.com/M/|0|1\n"
                                                "543|Mis\xe9rables, Les (1995)|01-Jan-1995||http|0|1\n"))
                                .value();
    CHECK(names.size() == 2);
    CHECK(names.at(1) == "Toy Story (1995)");
    CHECK(names.at(543) == "Misérables, Les (1995)");
  }
  SECTION("movies.dat") {
    const ItemNames names = ReadItemNames(Write("movies.dat",
                                                "1::Toy Story (1995)::Animation|Children's|Comedy\r\n"
                                                "71::Fair Game: A Film (1995)::Action\r\n"))
                                .value();
    CHECK(names.at(1) == "Toy Story (1995)");
    CHECK(names.at(71) == "Fair Game: A Film (1995)");
  }
  SECTION("movies.csv, in UTF-8, with quotes and a header") {
    const ItemNames names = ReadItemNames(Write("movies.csv",
                                                "movieId,title,genres\n1,Toy Story (1995),Adventure|Animation\n"
                                                "11,\"American President, The (1995)\",Comedy\n"
                                                "12,\"So-called \"\"film\"\", a\",Comedy\n54,Amélie,Comedy"))
                                .value();
    CHECK(names.size() == 4);
    CHECK(names.at(11) == "American President, The (1995)");
    CHECK(names.at(12) == "So-called \"film\", a");
    CHECK(names.at(54) == "Amélie");
  }
  SECTION("your own table, with control characters") {
    const ItemNames names = ReadItemNames(Write("own.tsv", "7\tblue\x1b[31m sofa \n9\tlamp\n\n")).value();
    CHECK(names.at(7) == "blue[31m sofa");
    CHECK(names.at(9) == "lamp");
  }
  SECTION("blank lines, a byte order mark and a header before it") {
    const std::string rest = GENERATE(as<std::string>(), "", "\r\n \n", "item|name\n", "\nitem|name\n");
    const ItemNames names = ReadItemNames(Write("own.txt", "\xef\xbb\xbf" + rest + "7|sofa\n9|lamp\n")).value();
    CHECK(names.size() == 2);
    CHECK(names.at(7) == "sofa");
  }
}

TEST_CASE("What is not a list of items is refused with its line") {
  const auto error = [](const std::string& text) {
    const absl::Status status = ReadItemNames(Write("bad", text)).status();
    CHECK(absl::IsDataLoss(status));
    return std::string(status.message());
  };
  CHECK_THAT(error("just text\n"), Contains("bad line 1: expected the number of an item and its name, with |, ::, a "
                                            "comma or a tab between them, found \"just text\""));
  CHECK_THAT(error("\n1|a\ntwo|b\n"), Contains("bad line 3: ") && Contains("with | between them"));
  CHECK_THAT(error("1|a\ntwo|b\n"), Contains("bad line 2: ") && Contains("with | between them, found \"two|b\""));
  CHECK_THAT(error("1|a\n2\n"), Contains("bad line 2: "));
  CHECK_THAT(error("0|a\n-1|b\n"), Contains("bad line 2: "));
  CHECK_THAT(error("item,name\n"), Contains("bad names no items"));
  CHECK_THAT(error(""), Contains("bad names no items"));
  CHECK(absl::IsNotFound(ReadItemNames("/nowhere/u.item").status()));
}

}  // namespace
}  // namespace official::recommendation
