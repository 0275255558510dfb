#!/usr/bin/env bash
# Every kernel of libofficial_cuda.so has registers enough, and no more stack than tools/gpu/kernel_table.py says.
set -euo pipefail
library=utils/compute/cuda_backend/libofficial_cuda.so
if [[ ! -e $library ]]; then
  echo "skipped: this build has no $library"
  exit 0
fi
if [[ -z ${OFFICIAL_CUOBJDUMP-} ]]; then
  echo "this test reads machine code: run it by tools/test, or set OFFICIAL_CUOBJDUMP to the program cuobjdump" >&2
  exit 1
fi
exec python3 tools/gpu/kernel_table.py --check --cuobjdump="$OFFICIAL_CUOBJDUMP" "$library"
