#include "utils/compute/ops/elementwise/tile_functions.h"

#include <string>
#include <type_traits>

#include "absl/container/flat_hash_map.h"
#include "utils/compute/cpu/convert.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/elementwise/math.h"

namespace official::compute {
namespace {

// `omp simd` because the output may be one of the inputs, which a check at run time would take for an overlap.
template <typename T, typename F, int kArity>
void Loop(const T* a, const T* b, const T* c, T* y, int64_t n) {
  WithSimd([=] {
    const F f{};
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (kArity == 1) {
        y[i] = f(a[i]);
      } else if constexpr (kArity == 2) {
        y[i] = f(a[i], b[i]);
      } else {
        y[i] = f(a[i], b[i], c[i]);
      }
    }
  });
}

template <typename From, typename To>
void ConvertLoop(const From* from, To* to, int64_t n) {
  if constexpr (kIsNarrowFloat<From> && std::is_same_v<To, float>) {
    ToFloats(from, to, n);
  } else if constexpr (kIsNarrowFloat<To> && std::is_same_v<From, float>) {
    FromFloats(from, to, n);
  } else {
    WithSimd([=] {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = ConvertElement<To>(from[i]);
    });
  }
}

template <typename From, typename T>
void Load(const void* from, int64_t offset, T* to, int64_t n) {
  ConvertLoop(static_cast<const From*>(from) + offset, to, n);
}

template <typename T, typename To>
void Store(const T* from, void* to, int64_t offset, int64_t n) {
  ConvertLoop(from, static_cast<To*>(to) + offset, n);
}

// Calls f with a value of the C++ type of `dtype`.
template <typename F>
auto WithTensorType(DType dtype, F f) {
  switch (dtype) {
    case DType::kInt32:
      return f(int32_t());
    case DType::kInt64:
      return f(int64_t());
    case DType::kUInt8:
      return f(uint8_t());
    case DType::kBool:
      return f(bool());
    default:
      return WithStorageType(dtype, f);
  }
}

}  // namespace

template <typename T>
TileFunction<T> FindTileFunction(absl::string_view functor) {
  static const auto* const table = [] {
    auto* functions = new absl::flat_hash_map<std::string, TileFunction<T>>;
    math::ForEachFunctor<T>([&]<typename F, int kArity>(const char* name, F, std::integral_constant<int, kArity>) {
      functions->emplace(name, Loop<T, F, kArity>);
    });
    return functions;
  }();
  const auto it = table->find(functor);
  return it == table->end() ? nullptr : it->second;
}

template <typename T>
TileLoad<T> FindTileLoad(DType from) {
  return WithTensorType(from, []<typename From>(From) -> TileLoad<T> { return Load<From, T>; });
}

template <typename T>
TileStore<T> FindTileStore(DType to) {
  return WithTensorType(to, []<typename To>(To) -> TileStore<T> { return Store<T, To>; });
}

template TileFunction<float> FindTileFunction<float>(absl::string_view);
template TileFunction<int32_t> FindTileFunction<int32_t>(absl::string_view);
template TileFunction<int64_t> FindTileFunction<int64_t>(absl::string_view);
template TileLoad<float> FindTileLoad<float>(DType);
template TileLoad<int32_t> FindTileLoad<int32_t>(DType);
template TileLoad<int64_t> FindTileLoad<int64_t>(DType);
template TileStore<float> FindTileStore<float>(DType);
template TileStore<int32_t> FindTileStore<int32_t>(DType);
template TileStore<int64_t> FindTileStore<int64_t>(DType);

}  // namespace official::compute
