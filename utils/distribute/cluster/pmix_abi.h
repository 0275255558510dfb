// The part of libpmix's C interface that pmix.cc calls. Names, numbers and layouts are those of the PMIx standard 4.1
// (https://pmix.github.io/pmix-standard), and the same in OpenPMIx 3.0 to 5.0, whose library is libpmix.so.2 in all of
// them. They are written down here so that building needs no PMIx, whose headers bring those of libevent and hwloc.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct pmix_proc_t {  // a process: its job and its number there
  char nspace[256];
  uint32_t rank;
};

struct pmix_byte_object_t {
  char* bytes;
  size_t size;
};

struct pmix_value_t {
  uint16_t type;
  union {
    bool flag;
    pmix_byte_object_t bo;
    void* largest[3];  // pmix_envar_t
  } data;
};

struct pmix_info_t {  // an option of a call
  char key[512];
  uint32_t flags;
  pmix_value_t value;
};

int PMIx_Init(pmix_proc_t* self, pmix_info_t info[], size_t ninfo);
int PMIx_Finalize(const pmix_info_t info[], size_t ninfo);
int PMIx_Put(uint8_t scope, const char key[], pmix_value_t* value);
int PMIx_Commit();
int PMIx_Fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo);
int PMIx_Get(const pmix_proc_t* proc, const char key[], const pmix_info_t info[], size_t ninfo, pmix_value_t** value);
const char* PMIx_Error_string(int status);

}  // extern "C"

namespace official::distribute::pmix {

static_assert(offsetof(pmix_proc_t, rank) == 256 && sizeof(pmix_value_t) == 32 && offsetof(pmix_value_t, data) == 8 &&
              offsetof(pmix_info_t, value) == 520 && sizeof(pmix_info_t) == 552);

inline constexpr int kSuccess = 0;                      // PMIX_SUCCESS
inline constexpr uint32_t kEveryRank = UINT32_MAX - 1;  // PMIX_RANK_WILDCARD
inline constexpr uint16_t kBool = 1, kByteObject = 27;  // PMIX_BOOL, PMIX_BYTE_OBJECT
inline constexpr uint8_t kGlobal = 3;                   // PMIX_GLOBAL: for the processes of all nodes
inline constexpr char kCollectData[] = "pmix.collect";  // PMIX_COLLECT_DATA

}  // namespace official::distribute::pmix
