// Ends a program, before anything else of it runs, where it could not even say why it dies: on a processor on which it
// would die of SIGILL, or without the memory that its libraries need before main. Linked into every program; see
// processor.cc for what this file must not do.
#include <sys/mman.h>
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

void PrintProgram(int argc, char** argv) {
  Print(argc > 0 ? BaseName(argv[0]) : "this program");
  Print(": ");
}

void CheckProcessor(int argc, char** argv, char**) {
  const char* const missing = MissingFeature(ReadProcessorFeatures());
  if (missing == nullptr) return;
  PrintProgram(argc, argv);
  Print("this machine has no ");
  Print(missing);
  Print("; the program needs an x86-64-v3 processor: Intel since Haswell (2013), AMD since Excavator (2015)\n");
  _exit(EXIT_FAILURE);
}

// Abseil's flags abort when their constructors find no memory.
void CheckMemory(int argc, char** argv, char**) {
  constexpr size_t kEnough = 8 << 20;
  void* const room = mmap(nullptr, kEnough, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room != MAP_FAILED) {
    munmap(room, kEnough);
    return;
  }
  PrintProgram(argc, argv);
  Print("out of memory: there is none left once the libraries are loaded; raise the limit of addresses (ulimit -v)\n");
  _exit(EXIT_FAILURE);
}

// The loader calls these functions before the constructors of all libraries and files.
[[gnu::section(".preinit_array"), gnu::used]] void (*const check_processor)(int, char**, char**) = CheckProcessor;
[[gnu::section(".preinit_array"), gnu::used]] void (*const check_memory)(int, char**, char**) = CheckMemory;

}  // namespace
}  // namespace official::misc
