// Finds the longest of many strings with which a text begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace official::transformer {

class SubtokenTrie {
 public:
  // The strings are distinct and not empty, and must outlive the trie; a string's id is its index.
  explicit SubtokenTrie(absl::Span<const absl::string_view> strings);

  struct Match {
    int32_t id;
    size_t length;  // bytes; 0 if no string matches
  };
  // Takes time in proportion to the longest string. Several threads may call it at once.
  Match LongestPrefix(absl::string_view text) const;

 private:
  struct Node {
    int32_t id = -1;  // id of the string that ends here, after `tail`
    uint32_t first_child = 0;
    uint32_t num_children = 0;
    absl::string_view tail;  // the rest of a string that shares no longer beginning with another
  };
  // The children of a node are adjacent; bytes_[i] leads to nodes_[i].
  std::vector<Node> nodes_;
  std::string bytes_;
};

}  // namespace official::transformer
