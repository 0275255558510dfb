#include "utils/data/file_kind.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace official::data {
namespace {

TEST_CASE("Files are recognized by their first bytes") {
  const auto [head, kind] = GENERATE(table<std::string, std::string>({
      {"\x1f\x8b\x08", "gzip-compressed"},
      {"PK\x03\x04rest", "a zip archive"},
      {std::string(257, 'x') + "ustar", "a tar archive"},
      {"\xff\xd8\xff\xe0", "a JPEG image"},
      {"\x89PNG\r\n\x1a\n", "a PNG image"},
      {"RIFF1234WEBPVP8", "a WebP image"},
      {std::string("\0\0\x08\x03", 4), "an IDX file of images"},
      {std::string("\x80\x04\x95\0", 4), "a Python pickle"},
      {"<!DOCTYPE html><html>", "an HTML page"},
      {"\xef\xbb\xbf\r\n  <HTML lang=\"en\">", "an HTML page"},
      {"<?xml version=\"1.0\"?><Error>", "an XML document"},
      {"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS, not the data itself"},
      // What tells nothing
      {"", ""},
      {"P", ""},
      {std::string(256, 'x'), ""},
      {"1,2,3,4\n", ""},
      {"'the_'\n", ""},
  }));
  CHECK(FileKind(head) == kind);
}

TEST_CASE("A file is opened for it, and one that cannot be is of no kind") {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/page");
  std::ofstream(path) << "<html>not found</html>";
  CHECK(KindOfFile(path) == "an HTML page");
  CHECK(KindNoteOfFile(path) == " (the file is an HTML page)");
  CHECK(KindOfFile("/nowhere/page").empty());
  CHECK(KindNoteOfFile("/nowhere/page").empty());
  CHECK(FileKindNote("1,2,3,4\n").empty());
}

}  // namespace
}  // namespace official::data
