// How tensors of several devices are added up: which numbers go from device to device, and in which order they are
// added. Whoever follows the plan, on the host or on GPUs, gets the same bits.
#pragma once

#include <vector>

namespace official::distribute {

// In which order a sum over the devices is made. The results differ in the last bits, never from run to run.
enum class SumOrder {
  // On device 0, by halves (TreeSum), as one device adds the parts of its batch: for 4 devices (g0 + g1) + (g2 + g3).
  // TensorFlow's operation of this name adds one device after the other.
  kReductionToOneDevice,
  // Two halves of the devices, each in ascending order on one device of the half, then the two sums. Those devices
  // change with the pack, so that the packs spread over the links; pack i has device i % n among them. TensorFlow
  // forgets the last device if n is odd; here it belongs to the second half.
  kHierarchicalCopy,
};

// Steps after which the tensors of all devices hold the sum, to be done in this order for each element. Places
// 0, ..., num_devices - 1 are the devices' tensors, those from num_devices on scratch memory.
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

// For pack number `pack` of a step. At least two devices.
SumPlan PlanSum(SumOrder order, int num_devices, int pack);

}  // namespace official::distribute
