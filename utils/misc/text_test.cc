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

TEST_CASE("Wrap breaks between words") {
  CHECK(Wrap("one two three four", 2, 11) == "  one two\n  three\n  four\n");
  CHECK(Wrap("one incomprehensible", 0, 8) == "one\nincomprehensible\n");
  CHECK(Wrap("", 4, 80) == "");
}

}  // namespace
}  // namespace official::misc
