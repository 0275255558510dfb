#include "utils/compute/pjrt/client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::compute {
namespace {

PJRT_Buffer_Type BufferType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return PJRT_Buffer_Type_F32;
    case DType::kBFloat16:
      return PJRT_Buffer_Type_BF16;
    case DType::kFloat16:
      return PJRT_Buffer_Type_F16;
    case DType::kFloat64:
      return PJRT_Buffer_Type_F64;
    case DType::kInt32:
      return PJRT_Buffer_Type_S32;
    case DType::kInt64:
      return PJRT_Buffer_Type_S64;
    case DType::kUInt8:
      return PJRT_Buffer_Type_U8;
    case DType::kBool:
      return PJRT_Buffer_Type_PRED;
  }
  return PJRT_Buffer_Type_INVALID;
}

PjrtBuffer Own(const PjrtPlugin& plugin, PJRT_Buffer* buffer) {
  return PjrtBuffer(buffer, [&plugin](PJRT_Buffer* b) {
    if (plugin.is_stuck()) return;
    auto args = OFFICIAL_PJRT_ARGS(PJRT_Buffer_Destroy);
    args.buffer = b;
    (void)plugin.Call(plugin.api().PJRT_Buffer_Destroy, args, "freeing a buffer");
  });
}

// A field of a protocol buffer that is a number.
void AppendField(std::string& message, int field, uint64_t value) {
  message += static_cast<char>(field << 3);
  for (; value >= 128; value >>= 7) message += static_cast<char>(value | 128);
  message += static_cast<char>(value);
}

// A field that is a message or a string, shorter than 128 bytes.
void AppendMessage(std::string& message, int field, absl::string_view value) {
  message += static_cast<char>(field << 3 | 2);
  message += static_cast<char>(value.size());
  message.append(value.data(), value.size());
}

}  // namespace

// The message: executable_build_options (3) {device_ordinal (1): -1, num_replicas (4), num_partitions (5): 1},
// compile_portable_executable (4): true for one replica, which any of the client's devices then runs,
// env_option_overrides (7): an option by its name, which keeps the rounding of a value that is stored as bfloat16 or
// half.
std::string PjrtCompileOptions(int num_replicas) {
  std::string build;
  AppendField(build, 1, static_cast<uint64_t>(-1));
  AppendField(build, 4, num_replicas);
  AppendField(build, 5, 1);
  std::string is_false;
  AppendField(is_false, 2, 0);
  std::string exact;
  AppendMessage(exact, 1, "xla_allow_excess_precision");
  AppendMessage(exact, 2, is_false);
  std::string options;
  AppendMessage(options, 3, build);
  if (num_replicas == 1) AppendField(options, 4, 1);
  AppendMessage(options, 7, exact);
  return options;
}

PJRT_Program PjrtProgramOf(absl::string_view module) {
  static constexpr absl::string_view kFormat = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(module.data());
  program.code_size = module.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

namespace {

std::vector<PJRT_Buffer*> PointersTo(absl::Span<const PjrtBuffer> buffers) {
  std::vector<PJRT_Buffer*> pointers;
  for (const PjrtBuffer& buffer : buffers) pointers.push_back(buffer.get());
  return pointers;
}

}  // namespace

PjrtEvent::~PjrtEvent() {
  if (event_ == nullptr || plugin_->is_stuck()) return;
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Event_Destroy);
  args.event = event_;
  (void)plugin_->Call(plugin_->api().PJRT_Event_Destroy, args, "freeing an event");
}

absl::Status PjrtEvent::Await(absl::string_view what) {
  PJRT_Event* const event = std::exchange(event_, nullptr);
  return event == nullptr ? absl::OkStatus() : plugin_->Await(event, what, std::move(memory_));
}

PjrtExecutable::~PjrtExecutable() {
  if (plugin_.is_stuck()) return;
  auto args = OFFICIAL_PJRT_ARGS(PJRT_LoadedExecutable_Destroy);
  args.executable = executable_;
  (void)plugin_.Call(plugin_.api().PJRT_LoadedExecutable_Destroy, args, "freeing a program");
}

absl::StatusOr<std::vector<PjrtResults>> PjrtExecutable::Run(PJRT_Device* device,
                                                             absl::Span<const std::vector<PJRT_Buffer*>> inputs,
                                                             int num_results) {
  const size_t num_devices = inputs.size();
  std::vector<std::vector<PJRT_Buffer*>> outputs(num_devices, std::vector<PJRT_Buffer*>(num_results, nullptr));
  std::vector<PJRT_Buffer* const*> input_lists;
  std::vector<PJRT_Buffer**> output_lists;
  for (const std::vector<PJRT_Buffer*>& list : inputs) input_lists.push_back(list.data());
  for (std::vector<PJRT_Buffer*>& list : outputs) output_lists.push_back(list.data());
  std::vector<PJRT_Event*> events(num_devices, nullptr);
  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  auto args = OFFICIAL_PJRT_ARGS(PJRT_LoadedExecutable_Execute);
  args.executable = executable_;
  args.options = &options;
  args.argument_lists = input_lists.data();
  args.num_devices = num_devices;
  args.num_args = inputs[0].size();
  args.output_lists = output_lists.data();
  args.device_complete_events = events.data();
  args.execute_device = device;
  RETURN_IF_ERROR(plugin_.Call(plugin_.api().PJRT_LoadedExecutable_Execute, args, "running a program"));
  std::vector<PjrtResults> results(num_devices);
  for (size_t d = 0; d < num_devices; ++d) {
    for (PJRT_Buffer* const output : outputs[d]) results[d].buffers.push_back(Own(plugin_, output));
    results[d].done = PjrtEvent(plugin_, events[d]);
  }
  return results;
}

absl::StatusOr<PjrtResults> PjrtExecutable::Execute(PJRT_Device* device, absl::Span<const PjrtBuffer> arguments,
                                                    int num_results) {
  ASSIGN_OR_RETURN(std::vector<PjrtResults> results, Run(device, {PointersTo(arguments)}, num_results));
  return std::move(results[0]);
}

absl::StatusOr<std::vector<PjrtResults>> PjrtExecutable::ExecuteOnAll(
    absl::Span<const std::vector<PjrtBuffer>> arguments, int num_results) {
  std::vector<std::vector<PJRT_Buffer*>> inputs;
  for (const size_t place : places_) inputs.push_back(PointersTo(arguments[place]));
  ASSIGN_OR_RETURN(std::vector<PjrtResults> in_order, Run(nullptr, inputs, num_results));
  std::vector<PjrtResults> results(in_order.size());
  for (size_t i = 0; i < in_order.size(); ++i) results[places_[i]] = std::move(in_order[i]);
  return results;
}

absl::StatusOr<std::shared_ptr<PjrtClient>> PjrtClient::Create(const PjrtPlugin& plugin,
                                                               const PjrtClientOptions& options) {
  PJRT_NamedValue count{};
  count.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  count.name = "cpu_device_count";
  count.name_size = std::strlen(count.name);
  count.type = PJRT_NamedValue_kInt64;
  count.int64_value = options.num_cpu_devices;
  count.value_size = 1;
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Client_Create);
  if (options.num_cpu_devices > 0) {
    args.create_options = &count;
    args.num_options = 1;
  }
  PJRT_Error* const error = plugin.CallWatched(plugin.api().PJRT_Client_Create, args, "looking for devices");
  RETURN_IF_ERROR(plugin.ToStatus(error, absl::StrCat("the PJRT plugin ", plugin.path(), " finds no device")));
  std::shared_ptr<PjrtClient> client(new PjrtClient(plugin, args.client));
  RETURN_IF_ERROR(client->Describe());
  return client;
}

PjrtClient::~PjrtClient() {
  if (plugin_.is_stuck()) return;
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Client_Destroy);
  args.client = client_;
  (void)plugin_.Call(plugin_.api().PJRT_Client_Destroy, args, "ending a client");
}

absl::Status PjrtClient::Describe() {
  const std::string what = absl::StrCat("the devices of the PJRT plugin ", plugin_.path());
  auto name = OFFICIAL_PJRT_ARGS(PJRT_Client_PlatformName);
  name.client = client_;
  RETURN_IF_ERROR(plugin_.Call(plugin_.api().PJRT_Client_PlatformName, name, what));
  platform_.assign(name.platform_name, name.platform_name_size);
  auto devices = OFFICIAL_PJRT_ARGS(PJRT_Client_AddressableDevices);
  devices.client = client_;
  RETURN_IF_ERROR(plugin_.Call(plugin_.api().PJRT_Client_AddressableDevices, devices, what));
  devices_.assign(devices.addressable_devices, devices.addressable_devices + devices.num_addressable_devices);
  if (devices_.empty())
    return absl::FailedPreconditionError(absl::StrCat("the PJRT plugin ", plugin_.path(), " finds no device"));
  return absl::OkStatus();
}

std::string PjrtClient::KindOf(PJRT_Device* device) const {
  auto description = OFFICIAL_PJRT_ARGS(PJRT_Device_GetDescription);
  description.device = device;
  if (!plugin_.Call(plugin_.api().PJRT_Device_GetDescription, description, "describing a device").ok())
    return "unknown";
  auto kind = OFFICIAL_PJRT_ARGS(PJRT_DeviceDescription_Kind);
  kind.device_description = description.device_description;
  if (!plugin_.Call(plugin_.api().PJRT_DeviceDescription_Kind, kind, "describing a device").ok()) return "unknown";
  return std::string(kind.device_kind, kind.device_kind_size);
}

absl::StatusOr<std::unique_ptr<PjrtExecutable>> PjrtClient::CompileWith(absl::string_view module,
                                                                        int num_replicas) const {
  const PJRT_Program program = PjrtProgramOf(module);
  const std::string options = PjrtCompileOptions(num_replicas);
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Client_Compile);
  args.client = client_;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  RETURN_IF_ERROR(
      plugin_.Call(plugin_.api().PJRT_Client_Compile, args, "compiling a program", CallWatch::Kind::kCompile));
  return std::make_unique<PjrtExecutable>(shared_from_this(), plugin_, args.executable);
}

absl::StatusOr<std::shared_ptr<PjrtExecutable>> PjrtClient::Compile(const std::string& module) const {
  auto executable = executables_.Get(module, [&] { return CompileWith(module, /*num_replicas=*/1); });
  if (!executable.ok()) executables_.ForgetErrors();  // who comes later tries again
  return executable;
}

absl::StatusOr<std::unique_ptr<PjrtExecutable>> PjrtClient::CompileForAll(
    absl::string_view module, absl::Span<PJRT_Device* const> devices) const {
  ASSIGN_OR_RETURN(std::unique_ptr<PjrtExecutable> executable, CompileWith(module, static_cast<int>(devices.size())));
  auto args = OFFICIAL_PJRT_ARGS(PJRT_LoadedExecutable_AddressableDevices);
  args.executable = executable->executable_;
  RETURN_IF_ERROR(plugin_.Call(plugin_.api().PJRT_LoadedExecutable_AddressableDevices, args, "compiling"));
  for (size_t i = 0; i < args.num_addressable_devices; ++i) {
    const auto found = std::find(devices.begin(), devices.end(), args.addressable_devices[i]);
    if (found != devices.end()) executable->places_.push_back(found - devices.begin());
  }
  if (executable->places_.size() == devices.size()) return executable;
  return absl::FailedPreconditionError(
      absl::StrCat("the PJRT plugin ", plugin_.path(), " has compiled a program of ", devices.size(),
                   " replicas for other devices than its first ones; train on all of them"));
}

absl::StatusOr<PjrtBuffer> PjrtClient::ToDevice(PJRT_Device* device, const TensorType& type, const void* data) const {
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Client_BufferFromHostBuffer);
  args.client = client_;
  args.data = data;
  args.type = BufferType(type.dtype);
  args.dims = type.shape.dims().data();
  args.num_dims = type.shape.rank();
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = device;
  RETURN_IF_ERROR(plugin_.Call(plugin_.api().PJRT_Client_BufferFromHostBuffer, args, "copying to a device"));
  PjrtBuffer buffer = Own(plugin_, args.buffer);
  RETURN_IF_ERROR(plugin_.Await(args.done_with_host_buffer, "copying to a device"));
  return buffer;
}

absl::Status PjrtClient::ToHost(PJRT_Buffer* buffer, const TensorType& type, void* data) const {
  // Not to `data` itself, which is gone when a device writes it after the deadline.
  const auto copy = std::make_shared_for_overwrite<char[]>(type.num_bytes());
  ASSIGN_OR_RETURN(PjrtEvent copied, StartToHost(buffer, type, copy));
  RETURN_IF_ERROR(copied.Await("copying from a device"));
  std::memcpy(data, copy.get(), type.num_bytes());
  return absl::OkStatus();
}

absl::StatusOr<PjrtEvent> PjrtClient::StartToHost(PJRT_Buffer* buffer, const TensorType& type,
                                                  std::shared_ptr<char[]> data) const {
  // The device may keep the dimensions in another order.
  std::vector<int64_t> minor_to_major;
  for (int i = type.shape.rank(); i-- > 0;) minor_to_major.push_back(i);
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Buffer_ToHostBuffer);
  args.src = buffer;
  args.host_layout = &layout;
  args.dst = data.get();
  args.dst_size = type.num_bytes();
  RETURN_IF_ERROR(plugin_.Call(plugin_.api().PJRT_Buffer_ToHostBuffer, args, "copying from a device"));
  return PjrtEvent(plugin_, args.event, std::move(data));
}

}  // namespace official::compute
