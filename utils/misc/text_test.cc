#include "utils/misc/text.h"

#include <catch2/catch.hpp>

namespace official::misc {
namespace {

using Names = std::vector<std::string>;

const Names kKnown = {"data_dir",   "dd", "model_dir", "md", "train_epochs",         "te",
                      "batch_size", "bs", "num_gpus",  "ng", "epochs_between_evals", "max_train_steps",
                      "dtype",      "dt"};

TEST_CASE("NearestNames finds slips of the finger") {
  CHECK(NearestNames("batchsize", kKnown) == Names{"batch_size"});
  CHECK(NearestNames("batch-size", kKnown) == Names{"batch_size"});
  CHECK(NearestNames("Batch_Size", kKnown) == Names{"batch_size"});
  CHECK(NearestNames("bacth_size", kKnown) == Names{"batch_size"});
  CHECK(NearestNames("num_gpu", kKnown) == Names{"num_gpus"});
  CHECK(NearestNames("dtpye", kKnown) == Names{"dtype"});
  CHECK(NearestNames("sb", kKnown) == Names{"bs"});
}

TEST_CASE("NearestNames finds parts of names, beginnings first") {
  CHECK(NearestNames("batch", kKnown) == Names{"batch_size"});
  CHECK(NearestNames("epochs", kKnown) == Names{"epochs_between_evals", "train_epochs"});
  CHECK(NearestNames("steps", kKnown) == Names{"max_train_steps"});
}

TEST_CASE("NearestNames keeps quiet where nothing is near") {
  CHECK(NearestNames("frobnicate", kKnown).empty());
  CHECK(NearestNames("", kKnown).empty());
  CHECK(NearestNames(std::string(1000000, 'x'), kKnown).empty());
}

TEST_CASE("Printable makes one short line") {
  CHECK(Printable("/tmp/für mich") == "/tmp/für mich");
  CHECK(Printable("a\nb\x01") == "a\\nb\\001");
  CHECK(Printable(std::string(100000, 'x')).size() < 250);
}

TEST_CASE("Bytes that are not UTF-8 are replaced") {
  for (const std::string text : {"", "a\x01\n", "naïve 日本 😀", "\u0080\uFFFF\U0010FFFF"}) {
    CHECK(ReplaceInvalidUtf8(text) == text);
  }
  CHECK(ReplaceInvalidUtf8("rd\xe9") == "rd\uFFFD");
  // A character that is cut off, one that is written longer than needed, a surrogate, one beyond Unicode.
  CHECK(ReplaceInvalidUtf8("\xe6\x97|\xc0\xbc") == "\uFFFD\uFFFD|\uFFFD\uFFFD");
  CHECK(ReplaceInvalidUtf8("\xed\xa0\x80") == "\uFFFD\uFFFD\uFFFD");
  CHECK(ReplaceInvalidUtf8("\xf4\x90\x80\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD");
  CHECK(Utf8CharacterLength("日本") == 3);
  CHECK(Utf8CharacterLength("") == 0);
  CHECK(IsUtf8("rd \uFFFD 日本"));
  CHECK_FALSE(IsUtf8("日本 rd\xe9"));
}

TEST_CASE("Wrap breaks between words") {
  CHECK(Wrap("one two three four", 2, 11) == "  one two\n  three\n  four\n");
  CHECK(Wrap("one incomprehensible", 0, 8) == "one\nincomprehensible\n");
  CHECK(Wrap("", 4, 80) == "");
}

}  // namespace
}  // namespace official::misc
