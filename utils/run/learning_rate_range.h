// The answer to --find_lr: a learning rate for a model, from a short training with a rising rate.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace official::run {

// The rates of the test: from the first to the last, each by the same factor above the one before.
inline constexpr double kFirstTestedRate = 1e-7, kLastTestedRate = 1;
inline constexpr int kTestedRates = 100;

// Returns the learning rate of step i of the test, from 0.
double TestedRate(int i);

struct TestedLoss {
  double learning_rate;
  double loss;      // before the update with this rate
  double smoothed;  // the mean of the losses until here, the later ones with more weight
};

// Appends the loss of the next step. Returns false if the training has diverged, so that there is nothing more to
// learn: the smoothed loss is more than four times the least one so far.
bool AddLoss(std::vector<TestedLoss>& losses, double loss);

// Returns the index of the rate around which the losses fall most steeply over the logarithm of the rate: the line
// through 31 of them falls by more than twice their standard deviation around it, and no other such line is steeper.
// Nothing if there is none: too few steps, or a loss that falls no more than it scatters.
// Source: "Cyclical Learning Rates for Training Neural Networks", L. N. Smith, 3.3; PyTorch Lightning's lr_find.
std::optional<size_t> SteepestDescent(const std::vector<TestedLoss>& losses);

// Returns a table of about 20 of the steps, the chosen one among them and marked.
std::string LossTable(const std::vector<TestedLoss>& losses, std::optional<size_t> chosen);

}  // namespace official::run
