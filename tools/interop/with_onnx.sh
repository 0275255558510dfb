#!/usr/bin/env bash
# with_onnx.sh MODULE [ARGUMENT...]: runs a Python test in the environment that tools/test makes and names.
set -euo pipefail
if [[ -z ${OFFICIAL_ONNX_PYTHON-} ]]; then
  echo "this test runs ONNX Runtime: run it by tools/test, or set OFFICIAL_ONNX_PYTHON to" \
    "\$(tools/python_env onnx)/bin/python" >&2
  exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$OFFICIAL_ONNX_PYTHON" -m "$@"
