#include "official/transformer/translator.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "official/transformer/text/unicode.h"
#include "official/transformer/text/vocabulary.h"
#include "utils/compute/core/status.h"
#include "utils/logs/task_progress.h"
#include "utils/misc/stop_signals.h"

namespace official::transformer {
namespace {

// str.split() of Python.
int64_t CountWords(absl::string_view line) {
  int64_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < line.size();) {
    const bool space = IsSpace(NextCharacter(line, &i));
    words += !space && !in_word;
    in_word = !space;
  }
  return words;
}

// A line to translate.
struct Source {
  size_t line;
  int64_t words;
  std::vector<int32_t> ids;
};

}  // namespace

std::vector<std::string> LinesToTranslate(absl::string_view content) {
  std::vector<std::string> lines = absl::StrSplit(content, '\n');
  if (FindInvalidUtf8(lines.back()) == absl::string_view::npos && Strip(lines.back()).empty()) lines.pop_back();
  return lines;
}

absl::StatusOr<int64_t> Translator::CountTokens(absl::string_view line) const {
  const size_t invalid = FindInvalidUtf8(line);
  if (invalid != absl::string_view::npos) {
    return absl::DataLossError(absl::StrCat("byte ", invalid + 1, " is not UTF-8"));
  }
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(vocabulary_.Encode(Strip(line), &ids));
  return static_cast<int64_t>(ids.size());
}

absl::StatusOr<std::vector<std::string>> Translator::Translate(const std::vector<std::string>& lines,
                                                               const TranslateOptions& options) {
  const std::atomic<int>* const stop = options.before_batch ? nullptr : &misc::StopSignalFlag();
  std::vector<Source> sources;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string name = absl::StrCat("line ", options.first_line + static_cast<int64_t>(i));
    const size_t invalid = FindInvalidUtf8(lines[i]);
    if (invalid != absl::string_view::npos) {
      return absl::DataLossError(absl::StrCat(name, ": byte ", invalid + 1, " is not UTF-8"));
    }
    const absl::string_view text = Strip(lines[i]);
    if (text.empty()) continue;
    Source source{i, CountWords(text), {}};
    const absl::Status status = vocabulary_.Encode(text, &source.ids);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
    source.ids.push_back(kEosId);
    sources.push_back(std::move(source));
  }
  std::stable_sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.words > b.words; });
  std::vector<std::string> translations(lines.size());
  logs::TaskProgress progress({.title = "translating", .total = static_cast<int64_t>(sources.size()), .unit = "lines"});
  for (size_t begin = 0; begin < sources.size(); begin += options.batch_size) {
    if (options.before_batch) RETURN_IF_ERROR(options.before_batch());
    if (stop != nullptr && *stop != 0) return absl::CancelledError("stopped while translating");
    const size_t end = std::min(sources.size(), begin + options.batch_size);
    std::vector<std::vector<int32_t>> batch;
    for (size_t i = begin; i < end; ++i) batch.push_back(std::move(sources[i].ids));
    const absl::StatusOr<Decoded> found = decoder_->Translate(batch, options.decode_length, stop);
    if (absl::IsResourceExhausted(found.status())) {
      const auto longest = std::max_element(batch.begin(), batch.end(),
                                            [](const auto& a, const auto& b) { return a.size() < b.size(); });
      const size_t line = sources[begin + (longest - batch.begin())].line;
      return absl::ResourceExhaustedError(absl::StrCat("line ", options.first_line + static_cast<int64_t>(line),
                                                       " has ", longest->size(),
                                                       " subtokens: ", found.status().message()));
    }
    RETURN_IF_ERROR(found.status());
    for (size_t i = begin; i < end; ++i) {
      translations[sources[i].line] =
          absl::StrReplaceAll(vocabulary_.Decode(BeforeEos(found->best[i - begin].ids)), {{"\n", " "}});
    }
    progress.Set(static_cast<int64_t>(end));
  }
  return translations;
}

}  // namespace official::transformer
