#include "utils/flags/one_device.h"

#include "utils/flags/shared_groups.h"

namespace official::flags {

FlagSpec OneDeviceStrategyFlag() {
  return {.name = "distribution_strategy",
          .key = true,
          .choices = {"default", "tpu"},
          .help =
              "tpu: compute on the TPU of this machine, or on the first device of --pjrt_plugin. default: on a GPU "
              "or the CPU, as --num_gpus says.",
          .other_names = {{"strategy distribute"}, {"use_tpu", "=tpu"}}};
}

FlagSpec OneDevicePluginFlag() {
  FlagSpec spec = SharedFlag("pjrt_plugin");
  spec.help =
      "With --distribution_strategy=tpu: the shared object, a PJRT plugin, that computes, such as libtpu.so or "
      "one of XLA for CPUs.";
  return spec;
}

FlagSpec OneDeviceTimeoutFlag() {
  FlagSpec spec = SharedFlag("all_reduce_timeout_secs");
  spec.help =
      "With --distribution_strategy=tpu: seconds that the plugin may take for all that it does but compile: it is "
      "loaded, finds devices, computes and copies. After that the program exits with an error.";
  return spec;
}

}  // namespace official::flags
