#!/usr/bin/env bash
# with_mlperf.sh MODULE [ARGUMENT...]: runs a Python test in the environment that tools/test makes and names.
set -euo pipefail
if [[ -z ${OFFICIAL_MLPERF_PYTHON-} ]]; then
  echo "this test runs MLPerf's checker: run it by tools/test, or set OFFICIAL_MLPERF_PYTHON to" \
    "\$(tools/python_env mlperf)/bin/python" >&2
  exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$OFFICIAL_MLPERF_PYTHON" -m "$@"
