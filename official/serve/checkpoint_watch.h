// Decides when the latest checkpoint of a directory is opened, from its files without reading them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace official::serve {

// The latest checkpoint, as far as that can be seen without reading it: other files of the same name are another one.
struct LatestFiles {
  std::string name;   // "model.ckpt-600"
  std::string state;  // inode, size and time of its index and its data

  friend bool operator==(const LatestFiles&, const LatestFiles&) = default;
};

// Returns nothing if no state file can be read.
std::optional<LatestFiles> FindLatestFiles(const std::string& model_dir);

// Is told what each look at a directory has found, and what came of opening it.
class CheckpointWatch {
 public:
  // `served`: the files of the checkpoint that is served, as they were before it was opened; nothing if that is an
  // older one than the latest.
  explicit CheckpointWatch(std::optional<LatestFiles> served) : served_(std::move(served)) {}

  // Takes what the next look has found. Returns true if it is to be opened: it is another checkpoint than the one that
  // is served and the one that could not be. The latter is opened again once its files have changed and two looks find
  // the same, so that nobody writes them any more; and if they have not (a disk was away, say), after 1 look, 2, 4 and
  // so on up to 64: each try reads all of it. A call of Served or Failed is to follow.
  bool IsDue(const std::optional<LatestFiles>& found);
  void Served();
  // Returns true if this is the first failure of a checkpoint of that name.
  bool Failed();

  // The files of the checkpoint that is served.
  const std::optional<LatestFiles>& served() const { return served_; }

 private:
  std::optional<LatestFiles> served_;
  std::optional<LatestFiles> failed_;           // of the last try, if it failed
  std::optional<LatestFiles> found_;            // at the last look
  int64_t looks_between_ = 0, looks_left_ = 0;  // until what has failed is tried again
};

}  // namespace official::serve
