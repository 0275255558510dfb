// Shared objects that are no plugin to work with: each defines one of FAKE_NO, FAKE_OLD, FAKE_SHORT, FAKE_FAILING,
// FAKE_NEWER, which can be loaded, and FAKE_TPU.

#include <cstdlib>

#include "pjrt_c_api.h"

#ifdef FAKE_NO
extern "C" void GetSomethingElse() {}
#else

namespace {

#ifdef FAKE_NEWER
// A later interface, to whose end functions were added.
struct Interface : PJRT_Api {
  void* added[20];
};
#else
using Interface = PJRT_Api;
#endif

Interface Api() {
  Interface api{};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
#ifdef FAKE_OLD
  api.pjrt_api_version.minor_version = 7;
#endif
#ifdef FAKE_SHORT
  // The functions behind this one are not there.
  api.struct_size = offsetof(PJRT_Api, PJRT_Client_Compile);
#endif
#ifdef FAKE_NEWER
  api.struct_size = sizeof(api);
  api.pjrt_api_version.minor_version = PJRT_API_MINOR + 20;
  // By the size that its caller gives it knows which fields of the arguments are there.
  api.PJRT_Plugin_Initialize = [](PJRT_Plugin_Initialize_Args* args) -> PJRT_Error* {
    if (args->struct_size != PJRT_Plugin_Initialize_Args_STRUCT_SIZE) std::abort();
    return nullptr;
  };
#endif
#ifdef FAKE_FAILING
  api.PJRT_Plugin_Initialize = [](PJRT_Plugin_Initialize_Args*) { return reinterpret_cast<PJRT_Error*>(1); };
  api.PJRT_Error_GetCode = [](PJRT_Error_GetCode_Args* args) -> PJRT_Error* {
    args->code = PJRT_Error_Code_UNAVAILABLE;
    return nullptr;
  };
  api.PJRT_Error_Message = [](PJRT_Error_Message_Args* args) {
    static constexpr char kMessage[] = "the device is on fire";
    args->message = kMessage;
    args->message_size = sizeof(kMessage) - 1;
  };
  api.PJRT_Error_Destroy = [](PJRT_Error_Destroy_Args*) {};
#endif
  return api;
}

}  // namespace

#ifdef FAKE_TPU
// It has no function PJRT_Plugin_Initialize: a call ends the program.
extern "C" void TfTpu_Initialize() {}
#endif

extern "C" const PJRT_Api* GetPjrtApi() {
  static const Interface api = Api();
  return &api;
}

#endif
