// The vector instructions that kernels use, for one instruction set, with kLanes floats in a Vec. Files that
// foreach_isa.h compiles include it (through tile_multiply-inl.h or directly), so it has no guard and no includes;
// those files need <immintrin.h>.

#define OFFICIAL_VEC_INLINE inline __attribute__((always_inline))

// Prefetches n floats into the innermost cache.
OFFICIAL_VEC_INLINE void Fetch(const float* p, int64_t n) {
  constexpr int64_t kLine = 16;
  for (int64_t i = 0; i < n; i += kLine) _mm_prefetch(p + i, _MM_HINT_T0);
}

#if OFFICIAL_ISA_AVX512
using Vec = __m512;
using IntVec = __m512i;
using Mask = __mmask16;
constexpr int kLanes = 16;
constexpr int kRegisters = 32;

OFFICIAL_VEC_INLINE Vec Zero() { return _mm512_setzero_ps(); }
OFFICIAL_VEC_INLINE Vec Load(const float* p) { return _mm512_loadu_ps(p); }
OFFICIAL_VEC_INLINE void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
OFFICIAL_VEC_INLINE Vec Broadcast(float x) { return _mm512_set1_ps(x); }
OFFICIAL_VEC_INLINE Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
OFFICIAL_VEC_INLINE Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
OFFICIAL_VEC_INLINE Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
OFFICIAL_VEC_INLINE Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
OFFICIAL_VEC_INLINE Vec Sqrt(Vec a) { return _mm512_sqrt_ps(a); }
// a * b - c
OFFICIAL_VEC_INLINE Vec FmaSub(Vec a, Vec b, Vec c) { return _mm512_fmsub_ps(a, b, c); }
// Loads or stores the first n elements, 1 <= n <= kLanes; the others become zero in the Vec, or stay as they are in
// memory. If n is at most 8, memory after the first 8 is not touched: it may be in another cache line.
OFFICIAL_VEC_INLINE Vec LoadFirst(const float* p, int n) {
  if (n <= 8) return _mm512_zextps256_ps512(_mm256_maskz_loadu_ps((1u << n) - 1, p));
  return _mm512_maskz_loadu_ps((1u << n) - 1, p);
}
OFFICIAL_VEC_INLINE void StoreFirst(float* p, Vec v, int n) {
  if (n <= 8) {
    _mm256_mask_storeu_ps(p, (1u << n) - 1, _mm512_castps512_ps256(v));
  } else {
    _mm512_mask_storeu_ps(p, (1u << n) - 1, v);
  }
}
OFFICIAL_VEC_INLINE Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }          // a * b + c
OFFICIAL_VEC_INLINE Vec NegatedFma(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a * b
// Stores past the caches, to an address that is a multiple of a Vec's size.
OFFICIAL_VEC_INLINE void Stream(float* p, Vec v) { _mm512_stream_ps(p, v); }
OFFICIAL_VEC_INLINE Mask Greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
OFFICIAL_VEC_INLINE Vec KeepIf(Mask m, Vec a) { return _mm512_maskz_mov_ps(m, a); }
OFFICIAL_VEC_INLINE Vec Select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_ps(m, no, yes); }
OFFICIAL_VEC_INLINE IntVec Select(Mask m, IntVec yes, IntVec no) { return _mm512_mask_blend_epi32(m, no, yes); }
OFFICIAL_VEC_INLINE IntVec BroadcastInt(int x) { return _mm512_set1_epi32(x); }
OFFICIAL_VEC_INLINE Mask LessInt(IntVec a, IntVec b) { return _mm512_cmplt_epi32_mask(a, b); }
// Stores the low byte of each lane: kLanes bytes in memory.
OFFICIAL_VEC_INLINE void StoreBytes(uint8_t* p, IntVec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}
OFFICIAL_VEC_INLINE IntVec LoadBytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// Loads kLanes bfloat16.
OFFICIAL_VEC_INLINE Vec LoadBFloat16(const uint16_t* p) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
// Rounds to the nearest bfloat16; NaN stays NaN.
OFFICIAL_VEC_INLINE Vec RoundToBFloat16(Vec v) {
  const IntVec bits = _mm512_castps_si512(v);
  const IntVec odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), BroadcastInt(1));
  const IntVec sum = _mm512_add_epi32(_mm512_add_epi32(bits, BroadcastInt(0x7fff)), odd);
  const Vec rounded = _mm512_castsi512_ps(_mm512_and_si512(sum, BroadcastInt(~0xffff)));
  return Select(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v, rounded);
}
// n / d, not always correctly rounded but faster, for loops with many divisions. An infinite d gives 0, and a d that is
// NaN, which min returns as its second operand, NaN.
OFFICIAL_VEC_INLINE Vec Quotient(Vec n, Vec d) {
  d = _mm512_min_ps(_mm512_set1_ps(0x1.fffffep127f), d);
  const Vec inverse = _mm512_rcp14_ps(d), q = Mul(n, inverse);
  return Fma(NegatedFma(q, d, n), inverse, q);
}
// Half a Vec, for arrays that do not fill a whole one.
using HalfVec = __m256;
OFFICIAL_VEC_INLINE HalfVec Add(HalfVec a, HalfVec b) { return _mm256_add_ps(a, b); }
OFFICIAL_VEC_INLINE HalfVec Sub(HalfVec a, HalfVec b) { return _mm256_sub_ps(a, b); }
OFFICIAL_VEC_INLINE HalfVec Mul(HalfVec a, HalfVec b) { return _mm256_mul_ps(a, b); }
OFFICIAL_VEC_INLINE HalfVec Div(HalfVec a, HalfVec b) { return _mm256_div_ps(a, b); }
OFFICIAL_VEC_INLINE HalfVec Sqrt(HalfVec a) { return _mm256_sqrt_ps(a); }
OFFICIAL_VEC_INLINE HalfVec FmaSub(HalfVec a, HalfVec b, HalfVec c) { return _mm256_fmsub_ps(a, b, c); }
OFFICIAL_VEC_INLINE HalfVec Fma(HalfVec a, HalfVec b, HalfVec c) { return _mm256_fmadd_ps(a, b, c); }
OFFICIAL_VEC_INLINE HalfVec NegatedFma(HalfVec a, HalfVec b, HalfVec c) { return _mm256_fnmadd_ps(a, b, c); }
OFFICIAL_VEC_INLINE HalfVec Quotient(HalfVec n, HalfVec d) {
  d = _mm256_min_ps(_mm256_set1_ps(0x1.fffffep127f), d);
  const HalfVec inverse = _mm256_rcp14_ps(d), q = Mul(n, inverse);
  return Fma(NegatedFma(q, d, n), inverse, q);
}
OFFICIAL_VEC_INLINE void StoreFirst(float* p, HalfVec v, int n) { _mm256_mask_storeu_ps(p, (1u << n) - 1, v); }
OFFICIAL_VEC_INLINE Vec Join(HalfVec lower, HalfVec upper) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(lower), upper, 1);
}
OFFICIAL_VEC_INLINE HalfVec LowerHalf(Vec v) { return _mm512_castps512_ps256(v); }
OFFICIAL_VEC_INLINE HalfVec UpperHalf(Vec v) { return _mm512_extractf32x8_ps(v, 1); }
#if OFFICIAL_ISA_BF16
// c + a.first * b.first + a.second * b.second with the sums in float32. A number of 32 bits is a pair of bfloat16, the
// first of which is in its lower half.
OFFICIAL_VEC_INLINE Vec DotPairs(Vec a, Vec b, Vec c) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }
// Rounds to kLanes bfloat16 and stores them.
OFFICIAL_VEC_INLINE void StoreBFloat16(uint16_t* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v));
}
// Rounds to bfloat16, in pairs of an element of `first` and one of `second`.
OFFICIAL_VEC_INLINE Vec Pairs(Vec first, Vec second) {
  const IntVec low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(first));
  const IntVec high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(second));
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}
// Tells which of kLanes bfloat16 are greater than zero.
OFFICIAL_VEC_INLINE Mask PositiveBFloat16(const uint16_t* p) {
  return _mm256_cmpgt_epi16_mask(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_setzero_si256());
}
#endif
// Interleaves a and b: a[0], b[0], a[1], b[1], ...
OFFICIAL_VEC_INLINE void Interleave(Vec a, Vec b, Vec& low, Vec& high) {
  const IntVec first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  low = _mm512_permutex2var_ps(a, first, b);
  high = _mm512_permutex2var_ps(a, _mm512_add_epi32(first, BroadcastInt(8)), b);
}
// Sums of neighbours: of pairs, then of fours, then of all; each step halves the number of vectors.
OFFICIAL_VEC_INLINE Vec SumPairs(Vec a, Vec b) { return Add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)); }
OFFICIAL_VEC_INLINE Vec SumFours(Vec a, Vec b) {
  const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
  return Add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
OFFICIAL_VEC_INLINE Vec SumQuarters(Vec a, Vec b) {
  return Add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
#else
using Vec = __m256;
using IntVec = __m256i;
using Mask = __m256;
constexpr int kLanes = 8;
constexpr int kRegisters = 16;

OFFICIAL_VEC_INLINE Vec Zero() { return _mm256_setzero_ps(); }
OFFICIAL_VEC_INLINE Vec Load(const float* p) { return _mm256_loadu_ps(p); }
OFFICIAL_VEC_INLINE void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
OFFICIAL_VEC_INLINE Vec Broadcast(float x) { return _mm256_set1_ps(x); }
OFFICIAL_VEC_INLINE Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
OFFICIAL_VEC_INLINE Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
OFFICIAL_VEC_INLINE Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
OFFICIAL_VEC_INLINE Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
OFFICIAL_VEC_INLINE Vec Sqrt(Vec a) { return _mm256_sqrt_ps(a); }
OFFICIAL_VEC_INLINE Vec Quotient(Vec n, Vec d) { return Div(n, d); }
OFFICIAL_VEC_INLINE Vec FmaSub(Vec a, Vec b, Vec c) { return _mm256_fmsub_ps(a, b, c); }
OFFICIAL_VEC_INLINE IntVec FirstLanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
OFFICIAL_VEC_INLINE Vec LoadFirst(const float* p, int n) { return _mm256_maskload_ps(p, FirstLanes(n)); }
OFFICIAL_VEC_INLINE void StoreFirst(float* p, Vec v, int n) { _mm256_maskstore_ps(p, FirstLanes(n), v); }
OFFICIAL_VEC_INLINE Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }          // a * b + c
OFFICIAL_VEC_INLINE Vec NegatedFma(Vec a, Vec b, Vec c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a * b
OFFICIAL_VEC_INLINE void Stream(float* p, Vec v) { _mm256_stream_ps(p, v); }
OFFICIAL_VEC_INLINE Mask Greater(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
OFFICIAL_VEC_INLINE Vec KeepIf(Mask m, Vec a) { return _mm256_and_ps(m, a); }
OFFICIAL_VEC_INLINE Vec Select(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, m); }
OFFICIAL_VEC_INLINE IntVec Select(Mask m, IntVec yes, IntVec no) {
  return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(m));
}
OFFICIAL_VEC_INLINE IntVec BroadcastInt(int x) { return _mm256_set1_epi32(x); }
OFFICIAL_VEC_INLINE Mask LessInt(IntVec a, IntVec b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a)); }
OFFICIAL_VEC_INLINE void StoreBytes(uint8_t* p, IntVec v) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
}
OFFICIAL_VEC_INLINE IntVec LoadBytes(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
OFFICIAL_VEC_INLINE Vec LoadBFloat16(const uint16_t* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
OFFICIAL_VEC_INLINE Vec RoundToBFloat16(Vec v) {
  const IntVec bits = _mm256_castps_si256(v);
  const IntVec odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), BroadcastInt(1));
  const IntVec sum = _mm256_add_epi32(_mm256_add_epi32(bits, BroadcastInt(0x7fff)), odd);
  const Vec rounded = _mm256_castsi256_ps(_mm256_and_si256(sum, BroadcastInt(~0xffff)));
  return Select(_mm256_cmp_ps(v, v, _CMP_UNORD_Q), v, rounded);
}
OFFICIAL_VEC_INLINE void Interleave(Vec a, Vec b, Vec& low, Vec& high) {
  const Vec first = _mm256_unpacklo_ps(a, b), second = _mm256_unpackhi_ps(a, b);
  low = _mm256_permute2f128_ps(first, second, 0x20);
  high = _mm256_permute2f128_ps(first, second, 0x31);
}
OFFICIAL_VEC_INLINE Vec SumPairs(Vec a, Vec b) { return Add(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)); }
OFFICIAL_VEC_INLINE Vec SumFours(Vec a, Vec b) {
  const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
  return Add(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
OFFICIAL_VEC_INLINE Vec SumQuarters(Vec a, Vec b) {
  return Add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
#endif

// Element i is the sum of the elements of v[i].
OFFICIAL_VEC_INLINE Vec SumEach(const Vec (&v)[kLanes]) {
  Vec fours[kLanes / 4];
#pragma GCC unroll 4
  for (int i = 0; i < kLanes / 4; ++i) {
    fours[i] = SumFours(SumPairs(v[4 * i], v[4 * i + 1]), SumPairs(v[4 * i + 2], v[4 * i + 3]));
  }
  const Vec low = SumQuarters(fours[0], fours[1]);
  if constexpr (kLanes == 8) return low;
  return SumQuarters(low, SumQuarters(fours[kLanes / 8], fours[kLanes / 4 - 1]));
}

// Element c of v[r] becomes element r of v[c].
OFFICIAL_VEC_INLINE void Transpose(Vec (&v)[kLanes]) {
#if OFFICIAL_ISA_AVX512
  // Within quarters of the vectors: 2 x 2 blocks, then 4 x 4 blocks.
  Vec pairs[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  Vec fours[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 2) {
    const int from = i / 4 * 4 + i % 4 / 2;
    const __m512d upper = _mm512_castps_pd(pairs[from]), lower = _mm512_castps_pd(pairs[from + 2]);
    fours[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(upper, lower));
    fours[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(upper, lower));
  }
  // fours[4 g + j], quarter k: rows 4 g to 4 g + 3 of column 4 k + j.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Vec even01 = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0x88);
    const Vec odd01 = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0xdd);
    const Vec even23 = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0x88);
    const Vec odd23 = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0xdd);
    v[j] = _mm512_shuffle_f32x4(even01, even23, 0x88);
    v[4 + j] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
    v[8 + j] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
    v[12 + j] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
  }
#else
#pragma GCC unroll 4
  for (int turn = 1; turn < kLanes; turn *= 2) {
    Vec to[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) Interleave(v[i], v[i + kLanes / 2], to[2 * i], to[2 * i + 1]);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = to[i];
  }
#endif
}
