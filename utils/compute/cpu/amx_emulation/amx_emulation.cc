// AMX on processors without it, for tests: a library to preload (LD_PRELOAD). oneDNN in the program then finds AMX and
// takes the algorithms that it takes there. Their instructions, which this processor does not know, are computed here,
// each for some microseconds (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1 chapter 18 and
// volume 2). The processor must have AVX-512 BF16.
//
// oneDNN learns of the processor by the instruction CPUID. While it is loaded, it runs step by step, by the trap flag,
// and is answered here; where it asks for the size of tiles, later, it gets an instruction that there is not instead.
// It asks the kernel for tiles by syscall(), which is defined here.

#include <cpuid.h>
#include <dlfcn.h>
#include <elf.h>
#include <immintrin.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

struct Tile {
  uint8_t bytes[kRows][kRowBytes];
};

// What LDTILECFG reads.
struct TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

struct Tiles {
  TileConfig config;
  Tile tiles[kTiles];
};
__attribute__((tls_model("initial-exec"))) thread_local Tiles state;

float FromBFloat16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// to += a * b, where a word of a row of `a` is two numbers of the depth, as is a word of a column of `b`.
void MultiplyPairs(int to, int a, int b) {
  const TileConfig& config = state.config;
  const int rows = config.rows[to], columns = config.row_bytes[to] / 4, pairs = config.row_bytes[a] / 4;
  for (int row = 0; row < rows; ++row) {
    uint16_t left[2 * 16], right[2 * 16];
    float sums[2][16] = {}, result[16];
    std::memcpy(left, state.tiles[a].bytes[row], kRowBytes);
    for (int pair = 0; pair < pairs; ++pair) {
      std::memcpy(right, state.tiles[b].bytes[pair], kRowBytes);
      for (int i = 0; i < 2; ++i) {
        for (int column = 0; column < columns; ++column) {
          sums[i][column] =
              __builtin_fmaf(FromBFloat16(left[2 * pair + i]), FromBFloat16(right[2 * column + i]), sums[i][column]);
        }
      }
    }
    std::memcpy(result, state.tiles[to].bytes[row], kRowBytes);
    for (int column = 0; column < columns; ++column) result[column] += sums[0][column] + sums[1][column];
    std::memcpy(state.tiles[to].bytes[row], result, kRowBytes);
  }
}

// An instruction with the prefix VEX.128 and the opcode map 0F38, without operands.
struct Instruction {
  int prefix;  // 0: none, 1: 66, 2: F3, 3: F2
  int opcode;
  bool has_address;
  int reg, rm, vvvv;  // ModRM.reg; ModRM.rm, which is a register if there is no address; VEX.vvvv
  char* base = nullptr;
  int64_t index = 0;  // scaled
  int size = 0;
};

uint64_t Register(const greg_t* registers, int number) {
  static constexpr int kPlaces[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return registers[kPlaces[number]];
}

// False if there is no such instruction at RIP.
bool Decode(const greg_t* registers, Instruction& result) {
  const auto* const code = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) return false;
  const bool x = (code[1] & 0x40) == 0, b = (code[1] & 0x20) == 0;
  const int mod = code[4] >> 6, rm = code[4] & 7;
  result = {.prefix = code[2] & 3,
            .opcode = code[3],
            .has_address = mod != 3,
            .reg = code[4] >> 3 & 7,
            .rm = rm,
            .vvvv = ~(code[2] >> 3) & 15};
  const uint8_t* next = code + 5;
  if (result.has_address) {
    uint64_t base = 0;
    bool has_base = true;
    if (rm == 4) {
      const int index = (*next >> 3 & 7) + 8 * x, low_base = *next & 7;
      if (index != 4) result.index = static_cast<int64_t>(Register(registers, index) << (*next >> 6));
      has_base = !(low_base == 5 && mod == 0);
      if (has_base) base = Register(registers, low_base + 8 * b);
      ++next;
    } else {
      if (rm == 5 && mod == 0) return false;  // relative to RIP: not made by oneDNN
      base = Register(registers, rm + 8 * b);
    }
    int32_t displacement = 0;
    if (mod == 1) {
      displacement = static_cast<int8_t>(*next++);
    } else if (mod == 2 || !has_base) {
      std::memcpy(&displacement, next, 4);
      next += 4;
    }
    result.base = reinterpret_cast<char*>(base + displacement);
  }
  result.size = static_cast<int>(next - code);
  return true;
}

// Returns false if it is no instruction of AMX.
bool Run(const Instruction& i) {
  enum Prefix { kNone, k66, kF3, kF2 };
  if (i.opcode == 0x49 && i.prefix == kNone) {
    state = {};                                                                           // TILERELEASE
    if (i.has_address) std::memcpy(&state.config, i.base + i.index, sizeof(TileConfig));  // LDTILECFG
  } else if (i.opcode == 0x49 && i.prefix == k66 && i.has_address) {
    std::memcpy(i.base + i.index, &state.config, sizeof(TileConfig));  // STTILECFG
  } else if (i.opcode == 0x49 && i.prefix == kF2 && !i.has_address) {
    state.tiles[i.reg] = {};  // TILEZERO
  } else if (i.opcode == 0x4b && (i.prefix == kF2 || i.prefix == k66) && i.has_address) {
    Tile& tile = state.tiles[i.reg];  // TILELOADD, TILELOADDT1
    tile = {};
    for (int row = 0; row < state.config.rows[i.reg]; ++row) {
      std::memcpy(tile.bytes[row], i.base + row * i.index, state.config.row_bytes[i.reg]);
    }
  } else if (i.opcode == 0x4b && i.prefix == kF3 && i.has_address) {
    for (int row = 0; row < state.config.rows[i.reg]; ++row) {  // TILESTORED
      std::memcpy(i.base + row * i.index, state.tiles[i.reg].bytes[row], state.config.row_bytes[i.reg]);
    }
  } else if (i.opcode == 0x5c && i.prefix == kF3 && !i.has_address) {
    MultiplyPairs(i.reg, i.rm, i.vvvv);  // TDPBF16PS
  } else {
    return false;
  }
  return true;
}

// Of the C library: those of this name are below.
int RealSigaction(int signal, const struct sigaction* action) {
  static const auto real = reinterpret_cast<decltype(&sigaction)>(dlsym(RTLD_NEXT, "sigaction"));
  return real(signal, action, nullptr);
}

constexpr uint8_t kCpuid[] = {0x0f, 0xa2}, kIllegal[] = {0x0f, 0x0b};

// CPUID, with the bits of AMX.
void AnswerCpuid(greg_t* registers) {
  const auto leaf = static_cast<uint32_t>(registers[REG_RAX]), subleaf = static_cast<uint32_t>(registers[REG_RCX]);
  uint32_t a, b, c, d;
  __cpuid_count(leaf, subleaf, a, b, c, d);
  if (leaf == 0) a = std::max(a, 0x1eu);
  if (leaf == 7 && subleaf == 0) {
    a = std::max(a, 1u);
    d |= 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, AMX-TILE, AMX-INT8
  }
  if (leaf == 0x1d) {  // tiles: palettes, then those of palette 1
    a = subleaf == 0 ? 1 : kTiles * sizeof(Tile) | sizeof(Tile) << 16;
    b = subleaf == 0 ? 0 : kRowBytes | kTiles << 16;
    c = subleaf == 0 ? 0 : kRows;
    d = 0;
  }
  if (leaf == 0x1e) {  // TMUL: the greatest depth in words, and row in bytes
    b = kRows | kRowBytes << 8;
    a = c = d = 0;
  }
  registers[REG_RAX] = a;
  registers[REG_RBX] = b;
  registers[REG_RCX] = c;
  registers[REG_RDX] = d;
}

void OnIllegalInstruction(int, siginfo_t*, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  _mm_setcsr(_mm_getcsr() | 0x8040);  // TDPBF16PS takes denormal numbers for zero
  if (std::memcmp(reinterpret_cast<const void*>(registers[REG_RIP]), kIllegal, 2) == 0) {
    AnswerCpuid(registers);
    registers[REG_RIP] += 2;
    return;
  }
  Instruction instruction;
  int count = 0;
  for (; Decode(registers, instruction) && Run(instruction); ++count) registers[REG_RIP] += instruction.size;
  if (count > 0) return;
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  RealSigaction(SIGILL, &by_default);  // and the same again
}

void OnStep(int, siginfo_t*, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  while (std::memcmp(reinterpret_cast<const void*>(registers[REG_RIP]), kCpuid, 2) == 0) {
    AnswerCpuid(registers);
    registers[REG_RIP] += 2;
  }
}

void SetTrapFlag(bool on) {
  uint64_t flags = __builtin_ia32_readeflags_u64();
  flags = on ? flags | 0x100 : flags & ~uint64_t{0x100};
  __builtin_ia32_writeeflags_u64(flags);
}

using InitFunction = void (*)(int, char**, char**);
InitFunction* originals;
size_t num_originals;

void InitStepByStep(int argc, char** argv, char** environment) {
  SetTrapFlag(true);
  for (size_t i = 0; i < num_originals; ++i) originals[i](argc, argv, environment);
  SetTrapFlag(false);
}

void InitNothing(int, char**, char**) {}

// Makes memory writable.
void Open(uint8_t* begin, uint8_t* end, int protection) {
  const auto page = reinterpret_cast<uintptr_t>(begin) & ~uintptr_t{4095};
  mprotect(reinterpret_cast<void*>(page), reinterpret_cast<uintptr_t>(end) - page, protection | PROT_WRITE);
}

// Makes InitStepByStep oneDNN's initialization.
void ReplaceInit(const dl_phdr_info& library, const ElfW(Phdr) & dynamic) {
  InitFunction* functions = nullptr;
  for (auto* entry = reinterpret_cast<ElfW(Dyn)*>(library.dlpi_addr + dynamic.p_vaddr); entry->d_tag != DT_NULL;
       ++entry) {
    if (entry->d_tag == DT_INIT_ARRAY) {
      functions = reinterpret_cast<InitFunction*>(library.dlpi_addr + entry->d_un.d_ptr);
    }
    if (entry->d_tag == DT_INIT_ARRAYSZ) num_originals = entry->d_un.d_val / sizeof(InitFunction);
  }
  originals = static_cast<InitFunction*>(std::malloc(num_originals * sizeof(InitFunction)));
  std::copy_n(functions, num_originals, originals);
  Open(reinterpret_cast<uint8_t*>(functions), reinterpret_cast<uint8_t*>(functions + num_originals), PROT_READ);
  std::fill_n(functions, num_originals, InitNothing);
  functions[0] = InitStepByStep;
}

// Replaces the CPUIDs that ask for leaf 1D, soon after this constant was loaded and a register cleared.
void ReplaceCpuid(uint8_t* begin, uint8_t* end) {
  constexpr uint8_t kLeaf[] = {0x1d, 0, 0, 0, 0x31, 0xc9};
  constexpr int kNear = 24;
  for (uint8_t* at = begin; (at = std::search(at, end, kLeaf, std::end(kLeaf))) != end; ++at) {
    uint8_t* const last = std::min(at + kNear, end);
    for (uint8_t* code = at; (code = std::search(code, last, kCpuid, std::end(kCpuid))) != last; ++code) {
      Open(code, code + 2, PROT_READ | PROT_EXEC);
      std::copy_n(kIllegal, 2, code);
    }
  }
}

int TakeOver(dl_phdr_info* library, size_t, void*) {
  if (std::strstr(library->dlpi_name, "libdnnl.so") == nullptr) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = library->dlpi_phdr[i];
    if (segment.p_type == PT_DYNAMIC) ReplaceInit(*library, segment);
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
      auto* const begin = reinterpret_cast<uint8_t*>(library->dlpi_addr + segment.p_vaddr);
      ReplaceCpuid(begin, begin + segment.p_memsz);
    }
  }
  return 1;
}

// Before the initialization of every other library (-z initfirst).
__attribute__((constructor)) void Start() {
  if (dl_iterate_phdr(TakeOver, nullptr) == 0) return;
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  action.sa_sigaction = OnIllegalInstruction;
  RealSigaction(SIGILL, &action);
  action.sa_sigaction = OnStep;
  RealSigaction(SIGTRAP, &action);
}

}  // namespace

extern "C" {

// As the C library's, but that SIGILL stays with the handler above: Catch2 has one for it, too.
__attribute__((visibility("default"))) int sigaction(int signal, const struct sigaction* action,
                                                     struct sigaction* old) noexcept {
  static const auto real = reinterpret_cast<decltype(&sigaction)>(dlsym(RTLD_NEXT, "sigaction"));
  return signal == SIGILL ? real(signal, nullptr, old) : real(signal, action, old);
}

// As the C library's, but that the kernel gives tiles to whom asks for them.
__attribute__((visibility("default"))) long syscall(long number, ...) noexcept {
  constexpr long kGetPermission = 0x1022, kAskPermission = 0x1023;  // ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_arch_prctl && arguments[0] == kGetPermission) {
    *reinterpret_cast<uint64_t*>(arguments[1]) = 3u << 17;  // XTILECFG, XTILEDATA
    return 0;
  }
  if (number == SYS_arch_prctl && arguments[0] == kAskPermission) return 0;
  static const auto real = reinterpret_cast<decltype(&syscall)>(dlsym(RTLD_NEXT, "syscall"));
  return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

}  // extern "C"
