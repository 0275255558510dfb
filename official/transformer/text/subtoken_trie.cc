#include "official/transformer/text/subtoken_trie.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/match.h"

namespace official::transformer {

SubtokenTrie::SubtokenTrie(absl::Span<const absl::string_view> strings) {
  std::vector<int32_t> sorted(strings.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return strings[a] < strings[b]; });

  // The sorted strings [begin, end) begin alike: with the `depth` bytes that lead to their node. Nodes are made level
  // by level.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, sorted.size(), 0}};
  nodes_.resize(1);
  bytes_.resize(1);
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (end - begin == 1 && node > 0) {
      nodes_[node].id = sorted[begin];
      nodes_[node].tail = strings[sorted[begin]].substr(depth);
      continue;
    }
    if (begin < end && strings[sorted[begin]].size() == depth) nodes_[node].id = sorted[begin++];
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = strings[sorted[begin]][depth];
      size_t next = begin;
      while (next < end && strings[sorted[next]][depth] == byte) ++next;
      ranges.push_back({begin, next, depth + 1});
      nodes_.emplace_back();
      bytes_ += byte;
      begin = next;
    }
    nodes_[node].num_children = static_cast<uint32_t>(nodes_.size()) - nodes_[node].first_child;
  }
}

SubtokenTrie::Match SubtokenTrie::LongestPrefix(absl::string_view text) const {
  Match longest = {-1, 0};
  const Node* node = nodes_.data();
  for (size_t i = 0; i < text.size(); ++i) {
    const char* children = bytes_.data() + node->first_child;
    const void* child = std::memchr(children, text[i], node->num_children);
    if (child == nullptr) break;
    node = &nodes_[node->first_child + (static_cast<const char*>(child) - children)];
    if (node->id >= 0 && absl::StartsWith(text.substr(i + 1), node->tail)) {
      longest = {node->id, i + 1 + node->tail.size()};
    }
  }
  return longest;
}

}  // namespace official::transformer
