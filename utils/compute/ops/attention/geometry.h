// Geometry that the kernels of attention on all devices have in common.
#pragma once

#include <cstdint>

#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/packed/packed_draws.h"

namespace official::compute {

// The geometry of an Attention or AttentionGrad node.
struct AttentionGeometry {
  explicit AttentionGeometry(const Node& node)
      : batch(node.input(attention::kQOffsets).shape().dim(0) - 1),
        heads(node.attrs().GetInt("num_heads")),
        queries(node.input(attention::kQ).shape().dim(0)),
        keys(node.input(attention::kK).shape().dim(0)),
        key_size(node.input(attention::kQ).shape().dim(1) / heads),
        value_size(node.input(attention::kV).shape().dim(1) / heads),
        causal(node.attrs().GetBool("causal")),
        scale(static_cast<float>(node.attrs().GetFloat("scale"))),
        drop(node.attrs().GetFloat("dropout_rate") > 0),
        stream(static_cast<uint32_t>(node.attrs().GetInt("stream"))),
        dropout(node.attrs().GetFloat("dropout_rate")) {}

  int64_t batch, heads;
  int64_t queries, keys;  // numbers of rows, with padding
  int64_t key_size, value_size;
  bool causal;
  float scale;
  bool drop;
  uint32_t stream;
  DropoutRate dropout;
};

// The geometry of a DecodeAttention node.
struct DecodeGeometry {
  explicit DecodeGeometry(const Node& node)
      : batch(node.input(decode_attention::kQ).shape().dim(0)),
        heads(node.attrs().GetInt("num_heads")),
        rows(node.input(decode_attention::kKCache).shape().dim(0)),
        positions(node.input(decode_attention::kKCache).shape().dim(1)),
        known(node.input(decode_attention::kCacheRows).shape().dim(1)),
        key_size(node.input(decode_attention::kQ).shape().dim(1) / heads),
        value_size(node.input(decode_attention::kV).shape().dim(1) / heads),
        scale(static_cast<float>(node.attrs().GetFloat("scale"))) {}

  int64_t batch, heads;
  int64_t rows, positions;  // sizes of the caches
  int64_t known;            // positions for which the rows in the caches are given
  int64_t key_size, value_size;
  float scale;
};

}  // namespace official::compute
