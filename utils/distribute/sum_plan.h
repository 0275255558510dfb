// The plan by which tensors of several devices are added up: which numbers go from device to device, and in which order
// they are added. Executions of one plan, on the host or on GPUs, give the same bits.
#pragma once

#include <vector>

namespace official::distribute {

// The order of a sum over the devices. The results of different orders differ in the last bits; those of one order
// never differ from run to run.
enum class SumOrder {
  // Adds on device 0, by halves (TreeSum), as one device adds the parts of its batch: for 4 devices (g0 + g1) + (g2 +
  // g3). TensorFlow's operation of this name adds one device after the other.
  kReductionToOneDevice,
  // Adds each half of the devices in ascending order on one device of the half, then the two sums. Those devices change
  // with the pack, so that the packs spread over the links; pack i has device i % n among them. TensorFlow forgets the
  // last device if n is odd; here it belongs to the second half.
  kHierarchicalCopy,
};

// The steps after which the tensors of all devices hold the sum, to be done in this order for each element. Places 0,
// ..., num_devices - 1 are the devices' tensors, those from num_devices on scratch memory.
struct SumPlan {
  struct Step {
    bool adds;  // place `to` += place `from`, both on one device; else `to` = `from`
    int to, from;
  };
  int num_devices;
  std::vector<Step> steps;
  std::vector<int> scratch;  // the device of place num_devices + i

  int DeviceOf(int place) const { return place < num_devices ? place : scratch[place - num_devices]; }
};

// Plans the sum of pack number `pack` of a step. There must be at least two devices.
SumPlan PlanSum(SumOrder order, int num_devices, int pack);

}  // namespace official::distribute
