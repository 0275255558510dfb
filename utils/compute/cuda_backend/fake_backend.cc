// Stands in for libofficial_cuda.so in open_library_test: FAKE_NO is another library, FAKE_OLD a backend of a time when
// there was one function only, and FAKE_OTHER one of other sources.

#include <cstdlib>

extern "C" {

#ifndef FAKE_NO
// Nothing is known of its arguments.
void OfficialRegisterCudaBackend() { std::abort(); }
#endif
#ifdef FAKE_OTHER
const char* OfficialCudaBackendSources() { return "0123456789abcdef, 12.2.0"; }
#endif
}
