#include "utils/distribute/sum_plan.h"

#include <utility>

namespace official::distribute {
namespace {

class Planner {
 public:
  explicit Planner(int num_devices) : plan_{num_devices, {}, {}} {}

  // Where `place` can be read and changed on `device`: itself, or a copy.
  int Bring(int place, int device) {
    if (plan_.DeviceOf(place) == device) return place;
    plan_.scratch.push_back(device);
    const int copy = plan_.num_devices + static_cast<int>(plan_.scratch.size()) - 1;
    Copy(copy, place);
    return copy;
  }
  void Copy(int to, int from) {
    if (to != from) plan_.steps.push_back({/*adds=*/false, to, from});
  }
  int Add(int to, int from) {
    plan_.steps.push_back({/*adds=*/true, to, from});
    return to;
  }
  // The sum of devices [first, last) on `device`, in the order of TreeSum.
  int AddByHalves(int first, int last, int device) {
    if (last - first == 1) return Bring(first, device);
    const int middle = first + (last - first + 1) / 2;
    const int sum = AddByHalves(first, middle, device);
    return Add(sum, AddByHalves(middle, last, device));
  }
  // The same in ascending order.
  int AddInOrder(int first, int last, int device) {
    const int sum = Bring(first, device);
    for (int d = first + 1; d < last; ++d) Add(sum, Bring(d, device));
    return sum;
  }
  SumPlan plan() && { return std::move(plan_); }

 private:
  SumPlan plan_;
};

}  // namespace

SumPlan PlanSum(SumOrder order, int num_devices, int pack) {
  Planner planner(num_devices);
  if (order == SumOrder::kReductionToOneDevice) {
    const int sum = planner.AddByHalves(0, num_devices, 0);
    for (int d = 0; d < num_devices; ++d) planner.Copy(d, sum);
    return std::move(planner).plan();
  }
  struct Half {
    int first, last, main;
  };
  const int half = num_devices / 2, chosen = pack % num_devices;
  const bool in_low = chosen < half;
  const Half low{0, half, in_low ? chosen : (chosen - half) % half};
  const Half high{half, num_devices, in_low ? half + chosen : chosen};
  const Half &one = in_low ? low : high, &other = in_low ? high : low;
  const int sum = planner.AddInOrder(one.first, one.last, one.main);
  const int rest = planner.AddInOrder(other.first, other.last, other.main);
  planner.Add(sum, planner.Bring(rest, one.main));
  for (int d = one.first; d < one.last; ++d) planner.Copy(d, sum);
  planner.Copy(other.main, sum);
  for (int d = other.first; d < other.last; ++d) planner.Copy(d, other.main);
  return std::move(planner).plan();
}

}  // namespace official::distribute
