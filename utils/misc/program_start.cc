// The first function of this file runs before the processor is checked: see processor.cc for what it must not do.
#include "utils/misc/program_start.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace official::misc {
namespace {

// Also the time in which the machine sleeps.
constexpr clockid_t kClock = CLOCK_BOOTTIME;

timespec program_start;

// The system call itself: the sanitizers' clock_gettime is not ready yet.
void NoteStart(int, char**, char**) { syscall(SYS_clock_gettime, kClock, &program_start); }

// The loader calls these functions before the constructors of all libraries and files.
[[gnu::section(".preinit_array"), gnu::used]] void (*const note_start)(int, char**, char**) = NoteStart;

}  // namespace

double SecondsSinceProgramStart() {
  timespec now;
  clock_gettime(kClock, &now);
  return static_cast<double>(now.tv_sec - program_start.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec - program_start.tv_nsec);
}

}  // namespace official::misc
