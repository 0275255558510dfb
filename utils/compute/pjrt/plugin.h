// PjrtPlugin: a shared object that offers PJRT's C interface, such as XLA for CPUs or libtpu.so for TPUs. The classes
// of this folder hide the interface's structs: what they return is ours, and their errors are absl::Status.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pjrt_c_api.h"
#include "utils/compute/pjrt/call_watch.h"

namespace official::compute {

class PjrtPlugin {
 public:
  // Loads and initializes the plugin at `path`, which stays loaded; a second call returns the same, with the waits of
  // the first. The errors name the path: NotFound if there is no such file; InvalidArgument if it is not a shared
  // object or not a PJRT plugin; FailedPrecondition if it is for other processors, needs libraries that are missing,
  // its interface is too old, or it is for TPUs and there is none.
  static absl::StatusOr<const PjrtPlugin*> Load(const std::string& path, const PjrtWaits& waits = {});
  // The same for compiling alone, which needs no device: a plugin for TPUs is also loaded where there is none.
  static absl::StatusOr<const PjrtPlugin*> LoadCompiler(const std::string& path, const PjrtWaits& waits = {});

  const PJRT_Api& api() const { return *api_; }
  const std::string& path() const { return path_; }
  // The version of its C interface: "0.81".
  std::string Version() const;
  // Turns an error of a call into a status, "<what>: <message>", and frees it; OK for nullptr.
  absl::Status ToStatus(PJRT_Error* error, absl::string_view what) const;
  // Calls a function of api() and returns its error, "<what>: <message>". The process ends, as PjrtWaits says, if it
  // does not return.
  template <typename Args>
  absl::Status Call(PJRT_Error* (*function)(Args*), Args& args, absl::string_view what,
                    CallWatch::Kind kind = CallWatch::Kind::kCall) const {
    return ToStatus(CallWatched(function, args, what, kind), what);
  }
  // The same, for which ToStatus has other words.
  template <typename Args>
  PJRT_Error* CallWatched(PJRT_Error* (*function)(Args*), Args& args, absl::string_view what,
                          CallWatch::Kind kind = CallWatch::Kind::kCall) const {
    const CallWatch::Call call(watch_, what, kind);
    return function(&args);
  }
  // Waits for an event and frees it; OK for nullptr. DeadlineExceeded, "<what>: ...", if it takes longer than
  // PjrtWaits::deadline: the plugin is stuck from then on. `memory`, which the plugin may write until the event, is
  // kept as long.
  absl::Status Await(PJRT_Event* event, absl::string_view what, std::shared_ptr<const void> memory = nullptr) const;
  // True once a wait has exceeded its deadline. Later waits fail at once, unless their event is there, and nothing of
  // the plugin is freed any more: the call might not return.
  bool is_stuck() const { return is_stuck_; }

 private:
  static absl::StatusOr<const PjrtPlugin*> LoadOnce(const std::string& path, bool for_compiling,
                                                    const PjrtWaits& waits);
  PjrtPlugin(const std::string& path, const PjrtWaits& waits) : path_(path), watch_(path, waits) {}
  absl::Status Open(bool for_compiling);
  void Destroy(PJRT_Error* error) const;

  const std::string path_;
  const PJRT_Api* api_ = nullptr;
  mutable CallWatch watch_;
  mutable std::atomic<bool> is_stuck_ = false;
};

// An empty struct of arguments, with the size by which a plugin knows which fields the caller has.
template <typename Args>
Args PjrtArgs(size_t struct_size) {
  Args args{};
  args.struct_size = struct_size;
  return args;
}
#define OFFICIAL_PJRT_ARGS(function) PjrtArgs<function##_Args>(function##_Args_STRUCT_SIZE)

}  // namespace official::compute
