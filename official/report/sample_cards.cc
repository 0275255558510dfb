#include "official/report/sample_cards.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "official/report/html.h"

namespace official::report {
namespace {

// The places of the columns that hold a class and the one that is predicted.
struct Answer {
  size_t expected, predicted;

  bool IsWrong(const std::vector<std::string>& row) const { return row[expected] != row[predicted]; }
};

std::optional<Answer> AnswerOf(const Samples& samples) {
  const auto find = [&](const char* name) -> size_t {
    return std::find(samples.columns.begin(), samples.columns.end(), name) - samples.columns.begin();
  };
  const Answer answer{.expected = find("class"), .predicted = find("prediction")};
  if (std::max(answer.expected, answer.predicted) == samples.columns.size()) return std::nullopt;
  return answer;
}

std::string Card(const Samples& samples, size_t i, const std::optional<Answer>& answer) {
  const std::vector<std::string>& row = samples.rows[i];
  const bool wrong = answer && answer->IsWrong(row);
  std::string html = wrong ? "<li class=\"wrong\">" : "<li>";
  if (const auto png = samples.pngs.find(i); png != samples.pngs.end()) {
    absl::StrAppend(&html, "<img alt=\"example ", i + 1, ": ", Escape(samples.columns[0]), " ", Escape(row[0]),
                    "\" src=\"data:image/png;base64,", absl::Base64Escape(png->second), "\">");
  }
  html += "<dl>";
  for (size_t column = 0; column < row.size(); ++column) {
    absl::StrAppend(&html, "<dt>", Escape(samples.columns[column]), "</dt><dd dir=\"auto\">", Escape(row[column]),
                    wrong && column == answer->predicted ? " <strong>&#10007; wrong</strong>" : "", "</dd>");
  }
  return html + "</dl></li>\n";
}

}  // namespace

std::string SampleCards(const Samples& samples) {
  if (samples.rows.empty()) return "";
  const std::optional<Answer> answer = AnswerOf(samples);
  std::string html;
  if (answer) {
    const auto wrong = std::count_if(samples.rows.begin(), samples.rows.end(),
                                     [&](const std::vector<std::string>& row) { return answer->IsWrong(row); });
    absl::StrAppend(&html, "<p>", wrong, " of ", samples.rows.size(), " predictions are wrong.</p>\n");
  }
  absl::StrAppend(&html, "<ul class=\"samples", samples.pngs.empty() ? " of-text" : "", "\">\n");
  for (size_t i = 0; i < samples.rows.size(); ++i) html += Card(samples, i, answer);
  return html + "</ul>\n";
}

}  // namespace official::report
