#include "utils/distribute/cluster/pmix.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/status/status.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;

// Returns what a process gets, or its error.
absl::StatusOr<PmixShare> ShareAs(int rank, std::optional<std::string> own, const std::string& fails = "",
                                  const std::string& waits = "") {
  setenv("FAKE_PMIX_RANK", std::to_string(rank).c_str(), 1);
  setenv("FAKE_PMIX_FAILS", fails.c_str(), 1);
  setenv("FAKE_PMIX_WAITS", waits.c_str(), 1);
  return ShareByPmix(std::move(own), std::chrono::seconds(waits.empty() ? 60 : 1),
                     "utils/distribute/cluster/libfake_pmix.so");
}

std::string MessageOf(const absl::StatusOr<PmixShare>& share) {
  const std::string message(share.status().message());
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

TEST_CASE("Process 0 shares its text, whatever the bytes, and a new secret") {
  const std::string text("192.0.2.1:20000\0\xff", 17);
  const auto first = ShareAs(0, text), second = ShareAs(0, text);
  INFO(first.status());
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(first->text == text);
  CHECK(first->secret.size() == 64);
  CHECK(first->secret.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(first->secret != second->secret);
}

TEST_CASE("The others get what process 0 gave") {
  const auto share = ShareAs(3, std::nullopt);
  INFO(share.status());
  REQUIRE(share.ok());
  CHECK(share->text == "official.text");
  CHECK(share->secret == "official.secret");
}

TEST_CASE("Each call that fails is named with its error") {
  for (const std::string call : {"PMIx_Init", "PMIx_Put", "PMIx_Commit", "PMIx_Fence", "PMIx_Get"}) {
    const auto share = ShareAs(0, "a:1", call);
    CHECK(absl::IsUnavailable(share.status()));
    CHECK(MessageOf(share) == call +
                                  " failed: UNREACHABLE (-25); start all processes with one mpirun or one srun "
                                  "--mpi=pmix, or name all workers in TF_CONFIG");
  }
  // Then everything has been shared.
  CHECK(ShareAs(0, "a:1", "PMIx_Finalize").ok());
  CHECK_THAT(MessageOf(ShareAs(1, std::nullopt, "type")), Contains("PMIx_Get gives no bytes for official.text"));
}

TEST_CASE("A process that has another number than its launcher said is refused") {
  CHECK(absl::IsUnavailable(ShareAs(1, "a:1").status()));
  CHECK_THAT(MessageOf(ShareAs(1, "a:1")), Contains("PMIx gives this process the number 1, what started it 0;"));
  CHECK_THAT(MessageOf(ShareAs(0, std::nullopt)), Contains("the number 0, what started it another;"));
}

TEST_CASE("A library that is missing or another one is named with what to install") {
  const auto missing = ShareByPmix("a:1", std::chrono::seconds(60), "libno_such_pmix.so.2");
  CHECK(absl::IsUnavailable(missing.status()));
  CHECK_THAT(MessageOf(missing), Contains("libno_such_pmix.so.2, by which the processes of mpirun") &&
                                     Contains("install it (Debian: libpmix2), or name all workers in TF_CONFIG"));
  CHECK(MessageOf(ShareByPmix("a:1", std::chrono::seconds(60), "libc.so.6")) ==
        "libc.so.6 is no PMIx: it has no PMIx_Error_string");
}

// The last test: the thread of the call that waits stays.
TEST_CASE("A call that does not return ends the wait at the deadline") {
  const auto share = ShareAs(0, "a:1", "", "PMIx_Fence");
  CHECK(absl::IsDeadlineExceeded(share.status()));
  CHECK(MessageOf(share) ==
        "the other processes have not all met this one by PMIx within 1 s (PMIx_Fence waits); see in their output "
        "whether they started, or name all workers in TF_CONFIG");
}

}  // namespace
}  // namespace official::distribute
