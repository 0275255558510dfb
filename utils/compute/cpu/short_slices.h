#pragma once

namespace official::compute {

// Asks the kernel to schedule the calling thread in short slices: beside other work it has the same share of a core,
// but when it wakes it begins at once, instead of after the slice of another thread, milliseconds later. Linux 6.12 and
// newer do so; older ones ignore it, and so does everything for threads of other policies than SCHED_OTHER.
void UseShortSlices();

}  // namespace official::compute
