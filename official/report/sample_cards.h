// The samples of a run: examples of its last evaluation with what was predicted for them.
#pragma once

#include <string>

#include "official/report/run.h"

namespace official::report {

// Returns an HTML <ul> with a card for each sample: its image, if it has one, and its texts by the names of their
// columns. Where there are a class and a prediction that differ, the card says so, and a line above the list says how
// many do. "" if there are no samples.
std::string SampleCards(const Samples& samples);

}  // namespace official::report
