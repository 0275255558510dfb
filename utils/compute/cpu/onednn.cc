#include "utils/compute/cpu/onednn.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "utils/compute/cpu/simd.h"

namespace official::compute {
namespace {

// Execution on the CPU is synchronous; a stream of its own per thread lets replicas run side by side.
const dnnl::stream& Stream() {
  thread_local const dnnl::stream stream(OnednnEngine());
  return stream;
}

absl::Status ToStatus(dnnl_status_t status) {
  switch (status) {
    case dnnl_success:
      return absl::OkStatus();
    case dnnl_out_of_memory:
      return absl::ResourceExhaustedError("out of memory in oneDNN");
    case dnnl_unimplemented:
      return absl::UnimplementedError(
          "oneDNN has no implementation of this operation for its types and shapes on this processor");
    default:
      return absl::InternalError(
          absl::StrCat("oneDNN failed with status ", static_cast<int>(status), " (dnnl_status_t)"));
  }
}

void LimitIsa() {
  switch (HasAvx512() ? MaxIsa() : Isa::kAvx2) {
    case Isa::kAvx2:
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
      break;
    case Isa::kAvx512:
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_vnni);
      break;
    case Isa::kAvx512Bf16:
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
      break;
    case Isa::kAmx:
      break;
  }
}

}  // namespace

const dnnl::engine& OnednnEngine() {
  static const auto* engine = [] {
    LimitIsa();
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *engine;
}

Isa CpuIsa() {
  static const Isa isa = [] {
    OnednnEngine();
    if (!HasAvx512Bf16()) return HasAvx512() ? Isa::kAvx512 : Isa::kAvx2;
    const bool has_amx = dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx;
    return IsaThatPays(has_amx ? Isa::kAmx : Isa::kAvx512Bf16, HasSlowPairs());
  }();
  return isa;
}

bool OnednnComputesIn(DType dtype) {
  if (dtype == DType::kBFloat16) return CpuIsa() >= Isa::kAvx512Bf16;
  return dtype == DType::kFloat32;
}

dnnl::memory::data_type OnednnType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return dnnl::memory::data_type::f32;
    case DType::kBFloat16:
      return dnnl::memory::data_type::bf16;
    case DType::kUInt8:
      return dnnl::memory::data_type::u8;
    default:
      OFFICIAL_CHECK(false) << "no oneDNN type for " << DTypeName(dtype);
  }
  return dnnl::memory::data_type::undef;
}

dnnl::memory::desc OnednnImages(const TensorType& type, Layout layout) {
  const Shape& s = type.shape;
  const auto tag =
      layout == Layout::kChannelBlocked ? dnnl::memory::format_tag::nChw16c : dnnl::memory::format_tag::nhwc;
  return dnnl::memory::desc({s.dim(0), s.dim(3), s.dim(1), s.dim(2)}, OnednnType(type.dtype), tag);
}

dnnl::primitive_attr OnednnAttr() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

absl::Status OnednnError(absl::string_view what, const dnnl::error& error) {
  const absl::Status status = ToStatus(error.status);
  return absl::Status(status.ok() ? absl::StatusCode::kInternal : status.code(),
                      absl::StrCat(what, ": oneDNN: ", error.what()));
}

absl::Status CheckRoomForCode() {
  constexpr size_t kBytes = 32 << 20;  // each kernel of a primitive takes up to 1 MB
  void* const room = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory: oneDNN needs up to ", kBytes, " bytes for code; is there a limit (ulimit -v)?"));
  }
  munmap(room, kBytes);
  return absl::OkStatus();
}

std::unique_lock<std::recursive_mutex> LockCreationUnderTsan() {
#ifdef __SANITIZE_THREAD__
  static auto* mutex = new std::recursive_mutex;
  return std::unique_lock<std::recursive_mutex>(*mutex);
#else
  return {};
#endif
}

OnednnPrimitive::OnednnPrimitive(dnnl::primitive primitive, const std::vector<Argument>& arguments)
    : primitive_(std::move(primitive)) {
  for (const Argument& argument : arguments) {
    memories_.emplace_back(argument.desc, OnednnEngine(), nullptr);
    arguments_.push_back({argument.id, memories_.back().get()});
  }
}

absl::Status OnednnPrimitive::Run(absl::Span<const void* const> addresses) const {
  OFFICIAL_CHECK(addresses.size() == arguments_.size());
  dnnl_stream_t stream = Stream().get();
  for (size_t i = 0; i < addresses.size(); ++i) {
    void* const address = const_cast<void*>(addresses[i]);
    RETURN_IF_ERROR(ToStatus(dnnl_memory_set_data_handle_v2(arguments_[i].memory, address, stream)));
  }
  const OneThreadUnderTsan guard;
  // The C interface: the C++ one builds a list of arguments at every call.
  return ToStatus(
      dnnl_primitive_execute(primitive_.get(), stream, static_cast<int>(arguments_.size()), arguments_.data()));
}

OnednnPrimitive OnednnReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  const dnnl::reorder::primitive_desc pd(OnednnEngine(), from, OnednnEngine(), to, OnednnAttr());
  OFFICIAL_CHECK(pd.scratchpad_desc().get_size() == 0);
  return OnednnPrimitive(dnnl::reorder(pd), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

}  // namespace official::compute
