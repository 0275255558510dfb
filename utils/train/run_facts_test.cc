#include "utils/train/run_facts.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/tensor.h"

namespace official::train {
namespace {

TEST_CASE("The facts of a checkpoint are single strings") {
  const char* root = std::getenv("TEST_TMPDIR");
  const std::string prefix = absl::StrCat(root ? root : "/tmp", "/facts");
  constexpr size_t kTooMany = (1 << 20) + 1;  // for BundleReader
  {
    auto writer = BundleWriter::Create(prefix).value();
    REQUIRE(writer->AddStrings("_run/many", {kTooMany}, std::vector<std::string>(kTooMany)).ok());
    REQUIRE(writer->Add("_run/number", compute::Tensor::Scalar<float>(1)).ok());
    REQUIRE(writer->AddStrings("_run/one", {}, {"before"}).ok());
    REQUIRE(writer->Finish().ok());
  }
  const auto checkpoint = BundleReader::Open(prefix).value();
  const auto compare = [&](const std::string& name, const std::string& value, std::string* before) {
    const auto difference = [](absl::string_view was) { return absl::StrCat("was ", was); };
    std::vector<RunFact> facts = {{.name = name, .value = value, .difference = difference, .must_match = true}};
    const absl::Status status = CompareFacts(*checkpoint, facts);
    *before = facts[0].before;
    return status;
  };
  std::string before;
  CHECK(compare("one", "before", &before).ok());
  CHECK(before == "before");
  CHECK(compare("one", "now", &before) == absl::InvalidArgumentError("was before"));
  CHECK(compare("none", "now", &before).ok());
  CHECK(absl::IsDataLoss(compare("number", "now", &before)));
  // Not read: no fact is saved so.
  CHECK(compare("many", "now", &before).ok());
  CHECK(before.empty());
}

}  // namespace
}  // namespace official::train
