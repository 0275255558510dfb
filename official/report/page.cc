#include "official/report/page.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/report/axis.h"
#include "official/report/chart.h"
#include "official/report/graphs.h"
#include "official/report/html.h"
#include "official/report/overview.h"
#include "official/report/page_style.h"
#include "official/report/sample_cards.h"
#include "official/report/time_bars.h"

namespace official::report {
namespace {

std::string Swatch(size_t run) {
  return absl::StrFormat(
      "<svg class=\"swatch c%d\" viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path d=\"M0 4H24\"/></svg>",
      static_cast<int>(run) % kNumColors);
}

std::string Legend(const std::vector<Run>& runs) {
  std::string html = "<ul class=\"legend\">\n";
  for (size_t i = 0; i < runs.size(); ++i) {
    absl::StrAppend(&html, "<li>", Swatch(i), Escape(runs[i].path), "</li>\n");
  }
  return html +
         "<li><svg class=\"swatch key\" viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path d=\"M0 4H24\"/></svg>"
         "training</li>\n"
         "<li><svg class=\"swatch key eval\" viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path d=\"M0 4H24\"/>"
         "<circle cx=\"12\" cy=\"4\" r=\"3\"/></svg>evaluation</li>\n</ul>\n";
}

// A table of names and a column for each run. Rows in which the runs differ are marked; those without any value are
// left out.
std::string ComparingTable(const std::vector<Run>& runs, const std::vector<const NamedTexts*>& texts,
                           const std::string& caption, const std::string& heading, const std::string& prefix,
                           bool differing) {
  std::string rows;
  for (const std::string& name : NamesOf(texts)) {
    const std::vector<std::string> values = ValuesOf(name, texts);
    const bool differs = Differ(values);
    if (runs.size() > 1 && differs != differing) continue;
    absl::StrAppend(&rows, differs ? "<tr class=\"differs\">" : "<tr>", "<th scope=\"row\">",
                    differs ? "<span title=\"the runs differ\">&#8800;</span> " : "", Escape(prefix), Escape(name),
                    "</th>");
    // One cell is enough for what all runs share.
    const size_t cells = differs ? values.size() : 1;
    for (size_t i = 0; i < cells; ++i) absl::StrAppend(&rows, "<td>", Escape(values[i]), "</td>");
    rows += "</tr>\n";
  }
  if (rows.empty()) return "";
  std::string html = absl::StrCat("<div class=\"wide\"><table><caption>", Escape(caption),
                                  "</caption>\n<thead><tr><th scope=\"col\">", Escape(heading), "</th>");
  const size_t columns = differing ? runs.size() : 1;
  for (size_t i = 0; i < columns; ++i) {
    const std::string name = differing || runs.size() == 1 ? runs[i].path : "all runs";
    absl::StrAppend(&html, "<th scope=\"col\">", differing ? Swatch(i) : "", Escape(name), "</th>");
  }
  return absl::StrCat(html, "</tr></thead>\n<tbody>\n", rows, "</tbody></table></div>\n");
}

// Differences first; what all runs share can be unfolded.
std::string Comparison(const std::vector<Run>& runs, const NamedTexts Run::*member, const std::string& what,
                       const std::string& prefix) {
  std::vector<const NamedTexts*> texts;
  bool any = false;
  for (const Run& run : runs) {
    texts.push_back(&(run.*member));
    any = any || !texts.back()->empty();
  }
  if (!any) return absl::StrCat("<p>The directories do not tell the ", what, ".</p>\n");
  std::string html;
  if (runs.size() > 1) {
    const std::string differing =
        ComparingTable(runs, texts, absl::StrCat("The ", what, " that differ"), what, prefix, /*differing=*/true);
    html += differing.empty() ? absl::StrCat("<p>The ", what, " are the same in all runs.</p>\n") : differing;
  }
  const std::string same = ComparingTable(runs, texts, absl::StrCat("All ", runs.size() > 1 ? "other " : "", what),
                                          what, prefix, /*differing=*/false);
  if (same.empty()) return html;
  return absl::StrCat(html, "<details><summary>All ", runs.size() > 1 ? "other " : "", what, "</summary>\n", same,
                      "</details>\n");
}

std::string Figure(const Chart& chart, size_t number) {
  return absl::StrCat("<figure>\n<figcaption>", Escape(chart.title), "</figcaption>\n",
                      ChartSvg(chart, absl::StrCat("graph", number)), "<details><summary>Values</summary>\n<p>",
                      Escape(Description(chart)), "</p>\n", ChartTable(chart), "</details>\n</figure>\n");
}

std::string Images(const Run& run, size_t number) {
  std::string html;
  for (const Image& image : run.images) {
    absl::StrAppend(&html, "<img alt=\"", Escape(image.tag), "\" src=\"data:image/png;base64,",
                    absl::Base64Escape(image.png), "\">\n");
  }
  if (html.empty()) return "";
  return absl::StrCat("<h3>", Swatch(number), Escape(run.path), ", training images of step ", run.images[0].step,
                      "</h3>\n<div class=\"images\">\n", html, "</div>\n");
}

std::string SamplesOf(const Run& run, size_t number) {
  const std::string cards = SampleCards(run.samples);
  if (cards.empty()) return "";
  return absl::StrCat("<h3>", Swatch(number), Escape(run.path), ", evaluation of step ", run.samples.step, "</h3>\n",
                      cards);
}

std::string Notes(const std::vector<Run>& runs) {
  std::string html;
  for (const Run& run : runs) {
    for (const std::string& note : run.notes) absl::StrAppend(&html, "<li>", Escape(note), "</li>\n");
  }
  return html.empty() ? "" : absl::StrCat("<h2>Damaged files</h2>\n<ul>\n", html, "</ul>\n");
}

std::string Section(const std::string& title, const std::string& content) {
  return content.empty() ? "" : absl::StrCat("<section>\n<h2>", title, "</h2>\n", content, "</section>\n");
}

}  // namespace

std::string Page(const std::vector<Run>& runs) {
  std::string title = runs.size() == 1 ? runs[0].path : absl::StrCat(runs.size(), " runs");
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
      Escape(title), "</title>\n<style>\n", kPageStyle, "</style>\n</head>\n<body>\n<main>\n<h1>", Escape(title),
      "</h1>\n", Legend(runs), OverviewTable(runs));
  std::string figures;
  const std::vector<Chart> charts = ChartsOf(runs);
  for (size_t i = 0; i < charts.size(); ++i) figures += Figure(charts[i], i + 1);
  html += Section("Curves", figures.empty() ? "<p>No values are recorded yet.</p>\n"
                                            : absl::StrCat("<div class=\"graphs\">\n", figures, "</div>\n"));
  html += Section("Where the time of a step goes", TimeBars(runs));
  std::string samples, images;
  for (size_t i = 0; i < runs.size(); ++i) samples += SamplesOf(runs[i], i);
  for (size_t i = 0; i < runs.size(); ++i) images += Images(runs[i], i);
  html += Section("Samples", samples);
  html += Section("Images", images);
  html += Section("Flags", Comparison(runs, &Run::flags, "flags", "--"));
  html += Section("Machine and versions", Comparison(runs, &Run::facts, "facts", ""));
  return absl::StrCat(html, Notes(runs), "</main>\n</body>\n</html>\n");
}

}  // namespace official::report
