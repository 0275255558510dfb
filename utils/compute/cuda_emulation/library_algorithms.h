// The algorithms of the emulated cuDNN and cuBLASLt: what a test may change of them, and see.
#pragma once

#include <map>
#include <set>
#include <string>

namespace official::compute::cuda_emulation {

struct LibraryAlgorithms {
  bool reversed = false;  // the libraries recommend them in the opposite order
  bool compiles = false;  // cuDNN has a compiler for the engines that need one
  struct Timed {
    double seconds = 0;  // that one run is said to take, besides those that it takes here
    int runs = 0;        // so far
  };
  // By the names that the project gives them, such as "engine 4, knobs 2=1"; others take what they take here.
  std::map<std::string, Timed> timed = {};
  // The convolutions that cuDNN was asked for so far, whatever their type: what is computed, images, filters and
  // window, as "output 256x224x224x3 * 64x7x7x3, padding 3x3, stride 2x2" with ", dilation 2x2" if that is not 1x1.
  std::set<std::string> convolutions = {};
};

// Those of all devices; for tests, while the devices have nothing to do.
LibraryAlgorithms& TheAlgorithms();

// For the libraries' work: notes one run of the algorithm and the time that it is said to take.
void NoteRun(const std::string& algorithm);
// For cuDNN: notes one of LibraryAlgorithms::convolutions.
void NoteConvolution(const std::string& convolution);

}  // namespace official::compute::cuda_emulation
