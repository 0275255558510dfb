// Stands in for NCCL in nccl_functions_test: each function returns its place in the order of LoadNcclFunctions.

extern "C" {

int ncclGetVersion() { return 0; }
int ncclGetErrorString() { return 1; }
int ncclGetLastError() { return 2; }
int ncclGetUniqueId() { return 3; }
int ncclCommInitRankConfig() { return 4; }
int ncclCommGetAsyncError() { return 5; }
int ncclCommAbort() { return 6; }
int ncclCommDestroy() { return 7; }
int ncclGroupStart() { return 8; }
int ncclGroupEnd() { return 9; }
#ifndef WITHOUT_ALL_REDUCE
int ncclAllReduce() { return 10; }
#endif
}
