// oneDNN as the kernels use it: one engine, primitives that are created once and then only run, and exceptions turned
// into absl::Status here.
#pragma once

#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/cpu/max_isa.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {

// The engine of the CPU. The first call limits oneDNN to the instructions that OFFICIAL_MAX_ISA allows (max_isa.h).
const dnnl::engine& OnednnEngine();

// The newest instructions with which kernels multiply on this machine: oneDNN's, and those of ours that multiply tiles
// of AMX (amx_tiles.h), unless ONEDNN_MAX_CPU_ISA forbids it. It is kAvx512 where pairs of bfloat16 are slow
// (HasSlowPairs) and there are no tiles, or may be none.
Isa CpuIsa();

// True if oneDNN multiplies bfloat16 with tiles, many times faster than vectors do.
inline bool OnednnHasAmx() { return CpuIsa() == Isa::kAmx; }

// True if oneDNN multiplies matrices of this type fast on this machine: float32 everywhere, bfloat16 where there are
// instructions for it that pay; elsewhere it is slower, refuses bfloat16 or emulates it, several times slower.
// oneDNN 2.6 has no float16 on CPUs. Use ComputeInFloat for types that it does not compute in.
bool OnednnComputesIn(DType dtype);

dnnl::memory::data_type OnednnType(DType dtype);

// The memory descriptor of NHWC images; oneDNN names its dimensions {N, C, H, W} whatever their order in memory.
dnnl::memory::desc OnednnImages(const TensorType& type, Layout layout);

// The attributes that every primitive gets: scratch memory comes from the caller.
dnnl::primitive_attr OnednnAttr();

// Returns the Status for an exception of oneDNN: Unimplemented, ResourceExhausted or Internal, "<what>: <oneDNN's
// message>".
absl::Status OnednnError(absl::string_view what, const dnnl::error& error);

// Returns ResourceExhausted if the process may not have a few dozen megabytes more (ulimit -v). oneDNN does not check
// that it got the memory into which it writes the code of a primitive, and crashes.
absl::Status CheckRoomForCode();

// A lock to hold while primitives are created, in builds with the thread sanitizer, which does not see the locks of
// oneDNN's cache.
std::unique_lock<std::recursive_mutex> LockCreationUnderTsan();

// Returns f(), which creates primitives and returns an absl::StatusOr; an exception of oneDNN becomes OnednnError(what,
// ...).
template <typename F>
auto CatchOnednn(absl::string_view what, F&& f) -> decltype(f()) {
  RETURN_IF_ERROR(CheckRoomForCode());
  const auto lock = LockCreationUnderTsan();
  const OneThreadUnderTsan guard;  // a primitive is divided among the threads when it is created
  try {
    return f();
  } catch (const dnnl::error& error) {
    return OnednnError(what, error);
  }
}

// A primitive and the memory objects of its arguments. Running it allocates nothing.
class OnednnPrimitive {
 public:
  struct Argument {
    int id;  // DNNL_ARG_SRC, ...
    dnnl::memory::desc desc;
  };
  // An empty primitive, which can only be assigned to.
  OnednnPrimitive() = default;
  // Throws dnnl::error.
  OnednnPrimitive(dnnl::primitive primitive, const std::vector<Argument>& arguments);

  explicit operator bool() const { return !arguments_.empty(); }
  // Runs with one address per argument, in the order of the constructor's.
  absl::Status Run(absl::Span<const void* const> addresses) const;

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// Returns the algorithm of a primitive for people, "oneDNN jit:avx512_core": see ONEDNN_VERBOSE of oneDNN.
template <typename PrimitiveDesc>
std::string OnednnAlgorithm(const PrimitiveDesc& pd) {
  return std::string("oneDNN ") + pd.impl_info_str();
}

// A copy from one memory format to another. This throws dnnl::error.
OnednnPrimitive OnednnReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

}  // namespace official::compute
