#!/usr/bin/env bash
# with_safetensors.sh MODULE [ARGUMENT...]: runs a Python test in the environment that tools/test makes and names.
set -euo pipefail
if [[ -z ${OFFICIAL_SAFETENSORS_PYTHON-} ]]; then
  echo "this test uses the library safetensors: run it by tools/test, or set OFFICIAL_SAFETENSORS_PYTHON to" \
    "\$(tools/python_env safetensors)/bin/python" >&2
  exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$OFFICIAL_SAFETENSORS_PYTHON" -m "$@"
