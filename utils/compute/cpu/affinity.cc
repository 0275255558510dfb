#include "utils/compute/cpu/affinity.h"

namespace official::compute {

template <typename F>
void Affinity::Set(const F& choose) {
  cpu_set_t now;
  if (sched_getaffinity(thread_, sizeof now, &now) != 0) return;
  if (!CPU_EQUAL(&now, &set_)) all_ = now;
  if (CPU_COUNT(&all_) < 2) return;
  cpu_set_t chosen = all_;
  choose(chosen);
  // What the kernel takes is what it was asked for, without processors that it does not have.
  if (sched_setaffinity(thread_, sizeof chosen, &chosen) == 0) set_ = chosen;
}

void Affinity::KeepOff(int processor) {
  Set([processor](cpu_set_t& processors) { CPU_CLR(processor, &processors); });
}

void Affinity::MoveTo(int processor) {
  Set([processor](cpu_set_t& processors) {
    CPU_ZERO(&processors);
    CPU_SET(processor, &processors);
  });
}

void Affinity::Free() {
  Set([](cpu_set_t&) {});
}

}  // namespace official::compute
