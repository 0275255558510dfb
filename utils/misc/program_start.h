// When this program was started.
#pragma once

namespace official::misc {

// Returns the seconds since the program was started: since the system's loader began to call its functions, which is
// after it has loaded the libraries. What the process did before it became this program (a script that builds and then
// execs it) does not count, as it would in the start time that the kernel keeps of a process.
double SecondsSinceProgramStart();

}  // namespace official::misc
