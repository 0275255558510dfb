// Stands in for libpmix.so.2 in pmix_test, as a job of one process that believes to be one of several. FAKE_PMIX_RANK
// is its number. FAKE_PMIX_FAILS names the call that fails, or is "type" if a value has another type than it was given;
// FAKE_PMIX_WAITS names the call that does not return. What another process has put is its key.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "utils/distribute/cluster/pmix_abi.h"

namespace {

bool HasValue(const char* variable, const char* call) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::strcmp(value, call) == 0;
}

int Return(const char* call) {
  while (HasValue("FAKE_PMIX_WAITS", call)) sleep(1);
  return HasValue("FAKE_PMIX_FAILS", call) ? -25 : 0;
}

std::map<std::string, std::string>& Values() {
  static auto* const values = new std::map<std::string, std::string>;
  return *values;
}

bool connected = false, committed = false, met = false;

}  // namespace

extern "C" {

int PMIx_Init(pmix_proc_t* self, pmix_info_t*, size_t) {
  std::strcpy(self->nspace, "job");
  self->rank = static_cast<uint32_t>(std::atoi(std::getenv("FAKE_PMIX_RANK")));
  connected = true;
  committed = met = false;
  Values().clear();
  return Return("PMIx_Init");
}

int PMIx_Finalize(const pmix_info_t*, size_t) {
  connected = false;
  return Return("PMIx_Finalize");
}

int PMIx_Put(uint8_t scope, const char* key, pmix_value_t* value) {
  if (!connected || scope != 3 || value->type != 27) return -1;
  Values()[key] = std::string(value->data.bo.bytes, value->data.bo.size);
  return Return("PMIx_Put");
}

int PMIx_Commit() {
  committed = true;
  return Return("PMIx_Commit");
}

int PMIx_Fence(const pmix_proc_t* procs, size_t nprocs, const pmix_info_t* info, size_t ninfo) {
  met = connected && nprocs == 1 && procs->rank == 4294967294 && std::strcmp(procs->nspace, "job") == 0 && ninfo == 1 &&
        std::strcmp(info->key, "pmix.collect") == 0 && info->value.type == 1 && info->value.data.flag;
  return Return("PMIx_Fence");
}

int PMIx_Get(const pmix_proc_t* proc, const char* key, const pmix_info_t*, size_t, pmix_value_t** value) {
  if (const int error = Return("PMIx_Get"); error != 0) return error;
  const bool own = std::atoi(std::getenv("FAKE_PMIX_RANK")) == 0;
  if (!met || proc->rank != 0 || (own && !committed)) return -46;
  const std::string text = own ? Values()[key] : key;
  *value = static_cast<pmix_value_t*>(std::calloc(1, sizeof(pmix_value_t)));
  (*value)->type = HasValue("FAKE_PMIX_FAILS", "type") ? 3 : 27;
  if ((*value)->type == 3) return 0;
  (*value)->data.bo = {static_cast<char*>(std::malloc(text.size())), text.size()};
  std::memcpy((*value)->data.bo.bytes, text.data(), text.size());
  return 0;
}

const char* PMIx_Error_string(int) { return "UNREACHABLE"; }

}  // extern "C"
