// Graphs of curves, as SVG.
#pragma once

#include <string>
#include <vector>

#include "official/report/series.h"

namespace official::report {

struct Line {
  std::string label;           // "run1, training"
  int color = 0;               // the number of the run; the page has kNumColors, which repeat
  bool of_evaluation = false;  // drawn dashed, with dots
  const Series* series = nullptr;
};

struct Chart {
  std::string title;  // "loss"
  std::vector<Line> lines;
};

inline constexpr int kNumColors = 8;

// Returns a graph over steps as an <svg> element that scales with the page. Its title and description are in the
// elements of these names. Its colours are the classes c0, c1, ... of the page. The steps and values fill the graph;
// where more values than columns are drawn, the smallest and the largest of each column are.
std::string ChartSvg(const Chart& chart, const std::string& id);

// Returns the curves of a graph as one or more sentences: first, last, smallest and largest value of each.
std::string Description(const Chart& chart);

// Returns the values of a graph as an HTML <table>: the last value of each curve in each of at most a dozen equal parts
// of the steps; empty where it has none there.
std::string ChartTable(const Chart& chart);

}  // namespace official::report
