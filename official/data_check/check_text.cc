// Files of lines: ratings, vocabularies, text to prepare.
#include "official/data_check/file_checks.h"
#include "official/recommendation/data/ratings_file.h"
#include "official/transformer/text/lines.h"
#include "official/transformer/text/vocabulary.h"
#include "utils/compute/core/status.h"

namespace official::data_check {
namespace {

void BadLine(int64_t line, const absl::Status& status, Findings& findings) {
  findings.Bad({.line = line, .message = std::string(status.message())});
}

// Counts what was read, with `num_bad` lines that were reported. DataLoss of the whole file is a finding.
absl::Status Finish(const absl::StatusOr<int64_t>& num_good, int64_t num_bad, Findings& findings) {
  findings.Count(num_good.value_or(0) + num_bad);
  if (num_good.ok() || !absl::IsDataLoss(num_good.status())) return num_good.status();
  findings.Bad({.message = std::string(num_good.status().message())});
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRatings(Findings& findings) {
  findings.SetContents("ratings");
  int64_t num_bad = 0;
  const auto num_good = recommendation::CountRatings(findings.path(), [&](int64_t line, const absl::Status& error) {
    ++num_bad;
    BadLine(line, error, findings);
    return absl::OkStatus();
  });
  return Finish(num_good, num_bad, findings);
}

absl::Status CheckVocabulary(Findings& findings) {
  findings.SetContents("vocabulary");
  int64_t num_bad = 0;
  const auto subtokens = transformer::ReadVocabulary(findings.path(), [&](int64_t line, const absl::Status& error) {
    ++num_bad;
    BadLine(line, error, findings);
    return absl::OkStatus();
  });
  if (!subtokens.ok()) return Finish(subtokens.status(), num_bad, findings);
  return Finish(static_cast<int64_t>(subtokens->size()), num_bad, findings);
}

absl::Status CheckText(Findings& findings) {
  findings.SetContents(std::string(kText));
  ASSIGN_OR_RETURN(const auto reader, transformer::LineReader::Open(findings.path()));
  for (;;) {
    absl::string_view line;
    const absl::StatusOr<bool> more = reader->Next(&line);
    if (more.ok() && !*more) return absl::OkStatus();
    if (!more.ok() && !absl::IsDataLoss(more.status())) return more.status();
    findings.Count(1);
    if (more.ok()) {
      findings.Progress(static_cast<int64_t>(line.size()) + 1);
      continue;
    }
    BadLine(reader->line_number(), more.status(), findings);
    if (!reader->can_go_on()) return absl::OkStatus();
  }
}

}  // namespace official::data_check
