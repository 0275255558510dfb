// Checksum in StableHLO.

#include <cstdint>
#include <numeric>
#include <vector>

#include "utils/compute/ops/checksum/checksum.h"
#include "utils/compute/ops/checksum/term.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// The tensor's bytes as words, ui32 [n].
HloValue WordsOf(HloBuilder& hlo, const TensorType& type, HloValue x) {
  int64_t size = SizeOf(type.dtype), count = type.shape.num_elements();
  x = hlo.Reshape(x, {count});
  if (type.dtype == DType::kBool) x = hlo.Convert(x, HloElement(DType::kUInt8));
  const HloType words{hlo::kUi32, {count}};
  if (size == kChecksumWordBytes) return hlo.Op("bitcast_convert", {x}, words);
  if (size > kChecksumWordBytes) {
    const int64_t of_element = size / kChecksumWordBytes;
    return hlo.Reshape(hlo.Op("bitcast_convert", {x}, {hlo::kUi32, {count, of_element}}), {count * of_element});
  }
  const int64_t of_word = kChecksumWordBytes / size, rows = (count + of_word - 1) / of_word;
  x = hlo.Pad(x, hlo.Splat(0, {x.element(), {}}), {0}, {rows * of_word - count}, {0});
  return hlo.Op("bitcast_convert", {hlo.Reshape(x, {rows, of_word})}, {hlo::kUi32, {rows}});
}

// ChecksumTerm of each word, ui64 [n].
HloValue TermsOf(HloBuilder& hlo, const HloValue& words) {
  const HloType type{hlo::kUi64, words.shape()};
  const auto constant = [&](uint64_t value) {  // in two halves, which doubles hold
    const HloValue high = hlo.Splat(static_cast<double>(value >> 32), type);
    return hlo.Add(hlo.Binary("shift_left", high, hlo.Splat(32, type)),
                   hlo.Splat(static_cast<double>(value & 0xffffffffu), type));
  };
  const auto mixed = [&](const HloValue& z, double shift) {
    return hlo.Binary("xor", z, hlo.Binary("shift_right_logical", z, hlo.Splat(shift, type)));
  };
  const HloValue number = hlo.Add(hlo.Iota(type, 0), hlo.Splat(1, type));
  HloValue z = hlo.Add(hlo.Convert(words, hlo::kUi64), hlo.Mul(number, constant(0x9e3779b97f4a7c15u)));
  z = hlo.Mul(mixed(z, 30), constant(0xbf58476d1ce4e5b9u));
  z = hlo.Mul(mixed(z, 27), constant(0x94d049bb133111ebu));
  return mixed(z, 31);
}

void Emit(const Node& node, HloBuilder& hlo) {
  std::vector<HloValue> sums;
  for (const Value& v : node.inputs()) {
    const HloValue terms = TermsOf(hlo, WordsOf(hlo, v.type(), hlo.In(v)));
    sums.push_back(hlo.Reshape(hlo.Reduce("add", terms, 0, {0}), {1}));
  }
  hlo.Out(node, 0, hlo.Concatenate(sums, 0));
}

const bool registered =
    RegisterHloEmitter({.op = op::Checksum,
                        .dtypes = StorageTypesAnd({DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool}),
                        .emit = Emit});

}  // namespace
}  // namespace official::compute
