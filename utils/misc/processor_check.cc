// Ends a program, before anything else of it runs, on a processor on which it would die of SIGILL. Linked into every
// program; see processor.cc for what this file must not do.
#include <unistd.h>

#include <cstdlib>

#include "utils/misc/processor.h"

namespace official::misc {
namespace {

void Print(const char* text) {
  size_t size = 0;
  while (text[size] != '\0') ++size;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, size);
}

const char* BaseName(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path) {
    if (*path == '/') name = path + 1;
  }
  return name;
}

void CheckProcessor(int argc, char** argv, char**) {
  const char* const missing = MissingFeature(ReadProcessorFeatures());
  if (missing == nullptr) return;
  Print(argc > 0 ? BaseName(argv[0]) : "this program");
  Print(": this machine has no ");
  Print(missing);
  Print("; the program needs an x86-64-v3 processor: Intel since Haswell (2013), AMD since Excavator (2015)\n");
  _exit(EXIT_FAILURE);
}

// The loader calls these functions before the constructors of all libraries and files.
[[gnu::section(".preinit_array"), gnu::used]] void (*const check_processor)(int, char**, char**) = CheckProcessor;

}  // namespace
}  // namespace official::misc
