#include "official/transformer/text/lines.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"

namespace official::transformer {
namespace {

const std::string kPath = absl::StrCat(std::getenv("TEST_TMPDIR"), "/text");

absl::StatusOr<std::vector<std::string>> Lines(absl::string_view contents) {
  REQUIRE(files::WriteFileAtomically(kPath, contents).ok());
  auto reader = LineReader::Open(kPath).value();
  std::vector<std::string> lines;
  for (;;) {
    absl::string_view line;
    const absl::StatusOr<bool> more = reader->Next(&line);
    if (!more.ok()) return more.status();
    if (!*more) return lines;
    lines.emplace_back(line);
    CHECK(reader->line_number() == static_cast<int64_t>(lines.size()));
  }
}

using Strings = std::vector<std::string>;

// Expected: what iterating over tf.io.gfile.GFile(path, "r") gives in TensorFlow 2.15, less the '\n'.
TEST_CASE("Lines end with a newline, and carriage returns are dropped") {
  CHECK(Lines("").value() == Strings{});
  CHECK(Lines("\n").value() == Strings{""});
  CHECK(Lines("a\n\nb").value() == Strings{"a", "", "b"});
  CHECK(Lines("a\rb\r\nc\r\n\r\n").value() == Strings{"ab", "c", ""});
  CHECK(Lines(absl::string_view("x\u0085y\u2028z\x0b\0q\n", 12)).value() ==
        Strings{std::string("x\u0085y\u2028z\x0b\0q", 11)});
}

TEST_CASE("Lines that are longer than a read come out whole") {
  const std::string a(1 << 18, 'a'), b((5 << 18) + 7, 'b');
  CHECK(Lines(absl::StrCat(a, "\n", b, "\n", "c")).value() == Strings{a, b, "c"});
  CHECK(Lines(absl::StrCat("c\n", b)).value() == Strings{"c", b});
}

TEST_CASE("What is not text is refused with file and line") {
  const absl::Status not_utf8 = Lines("fine\nnot \xe4 fine\n").status();
  CHECK(absl::IsDataLoss(not_utf8));
  CHECK(not_utf8.message() == absl::StrCat(kPath, ":2: byte 5 of the line, 0xe4, is not UTF-8"));
  CHECK(Lines("\x1f\x8b\x08\n").status().message() ==
        absl::StrCat(kPath, ":1: byte 2 of the line, 0x8b, is not UTF-8 (the file is gzip-compressed)"));
  const absl::Status endless = Lines("a\n" + std::string(17 << 20, 'x')).status();
  CHECK(absl::IsDataLoss(endless));
  CHECK(endless.message() == absl::StrCat(kPath, ":2: the line is longer than 16777216 bytes; is this a text file?"));
  CHECK(absl::IsNotFound(LineReader::Open(kPath + ".none").status()));
}

}  // namespace
}  // namespace official::transformer
