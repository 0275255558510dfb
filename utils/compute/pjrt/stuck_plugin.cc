// A PJRT plugin for tests whose device takes all work and never does it. Once somebody waits for it, the calls that
// free something do not return either.

#include <unistd.h>

#include <atomic>
#include <string>

#include "pjrt_c_api.h"

namespace {

std::atomic<bool> somebody_waits = false;

template <typename T>
T* Handle() {
  static char handle;
  return reinterpret_cast<T*>(&handle);
}

template <typename Args>
PJRT_Error* Free(Args*) {
  while (somebody_waits) pause();
  return nullptr;
}

// The number of results of the module's function, as HloBuilder writes it: the plugin's caller knows it.
size_t CountResults(const std::string& module) {
  const size_t begin = module.find(") -> ("), end = module.find(") {\n", begin);
  size_t count = 0;
  for (size_t at = module.find("tensor<", begin); at < end; at = module.find("tensor<", at + 1)) ++count;
  return count;
}

PJRT_Error* Compile(PJRT_Client_Compile_Args* args) {
  args->executable = reinterpret_cast<PJRT_LoadedExecutable*>(
      new size_t(CountResults(std::string(args->program->code, args->program->code_size))));
  return nullptr;
}

PJRT_Error* Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  const size_t num_results = *reinterpret_cast<size_t*>(args->executable);
  for (size_t device = 0; device < args->num_devices; ++device) {
    for (size_t i = 0; i < num_results; ++i) args->output_lists[device][i] = Handle<PJRT_Buffer>();
    args->device_complete_events[device] = Handle<PJRT_Event>();
  }
  return nullptr;
}

PJRT_Api Api() {
  PJRT_Api api{};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  api.PJRT_Plugin_Initialize = [](PJRT_Plugin_Initialize_Args*) -> PJRT_Error* { return nullptr; };
  api.PJRT_Client_Create = [](PJRT_Client_Create_Args* args) -> PJRT_Error* {
    args->client = Handle<PJRT_Client>();
    return nullptr;
  };
  api.PJRT_Client_PlatformName = [](PJRT_Client_PlatformName_Args* args) -> PJRT_Error* {
    args->platform_name = "cpu";
    args->platform_name_size = 3;
    return nullptr;
  };
  api.PJRT_Client_AddressableDevices = [](PJRT_Client_AddressableDevices_Args* args) -> PJRT_Error* {
    static PJRT_Device* device = Handle<PJRT_Device>();
    args->addressable_devices = &device;
    args->num_addressable_devices = 1;
    return nullptr;
  };
  api.PJRT_Device_GetDescription = [](PJRT_Device_GetDescription_Args* args) -> PJRT_Error* {
    args->device_description = Handle<PJRT_DeviceDescription>();
    return nullptr;
  };
  api.PJRT_DeviceDescription_Kind = [](PJRT_DeviceDescription_Kind_Args* args) -> PJRT_Error* {
    args->device_kind = "stuck";
    args->device_kind_size = 5;
    return nullptr;
  };
  api.PJRT_Client_Compile = Compile;
  api.PJRT_Client_BufferFromHostBuffer = [](PJRT_Client_BufferFromHostBuffer_Args* args) -> PJRT_Error* {
    args->buffer = Handle<PJRT_Buffer>();
    args->done_with_host_buffer = nullptr;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_Execute = Execute;
  api.PJRT_Buffer_ToHostBuffer = [](PJRT_Buffer_ToHostBuffer_Args* args) -> PJRT_Error* {
    args->event = Handle<PJRT_Event>();
    return nullptr;
  };
  api.PJRT_Event_OnReady = [](PJRT_Event_OnReady_Args*) -> PJRT_Error* {
    somebody_waits = true;
    return nullptr;
  };
  api.PJRT_Event_Destroy = Free<PJRT_Event_Destroy_Args>;
  api.PJRT_Buffer_Destroy = Free<PJRT_Buffer_Destroy_Args>;
  api.PJRT_LoadedExecutable_Destroy = Free<PJRT_LoadedExecutable_Destroy_Args>;
  api.PJRT_Client_Destroy = Free<PJRT_Client_Destroy_Args>;
  return api;
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = Api();
  return &api;
}
