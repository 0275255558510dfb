// Feeds each file that is named on the command line to the fuzz target once. A crash or a failed check ends the
// program, and the last line names the file.
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "there are no stored inputs\n";
    return 1;
  }
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file) {
      std::cerr << argv[i] << " cannot be read\n";
      return 1;
    }
    std::cerr << argv[i] << ": " << bytes.size() << " bytes" << std::endl;
    // A copy of exactly that size, so that a sanitizer sees a read beyond the end.
    const std::vector<uint8_t> input(bytes.begin(), bytes.end());
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}
