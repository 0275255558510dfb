// The data as a part of a training's state: the same on all workers, and those of the training from one run to the
// next.
#pragma once

#include <string>

#include "utils/run/input.h"
#include "utils/train/estimator.h"
#include "utils/train/run_facts.h"

namespace official::run {

// Describes what all workers have to train on: "CIFAR-10 (training on 50000 examples, FINGERPRINT)".
std::string DescribeTrainingData(const Input& input);
// Describes what all workers have to read, those that evaluate also to evaluate on: "CIFAR-10 (training on 50000
// examples, FINGERPRINT; evaluating on FINGERPRINT; 10 classes)". Training data that are not read are left out.
std::string DescribeData(const Input& input, bool evaluates);

// Returns the data of this fingerprint as a fact, which a checkpoint keeps: a run that resumes on other data, or only
// evaluates on them (`trains` is false), warns that its results will differ.
train::RunFact TrainingDataFact(const std::string& fingerprint, bool trains);

// Lets the estimator, whose facts TrainingDataFact is among, go on with the next epoch, and warns, where the data have
// fewer examples than when the checkpoint was written, so that its place in an epoch is after the end. With the same
// data it cannot be, and reading them will refuse to begin there.
void ContinueInsideEpoch(const Input& input, train::Estimator& estimator);

}  // namespace official::run
