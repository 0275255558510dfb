#!/usr/bin/env bash
# with_tensorflow.sh MODULE [ARGUMENT...]: runs a Python test in the environment that tools/test makes and names.
set -euo pipefail
if [[ -z ${OFFICIAL_TF_PYTHON-} ]]; then
  echo "this test compares with TensorFlow: run it by tools/test, or set OFFICIAL_TF_PYTHON to" \
    "\$(tools/python_env tensorflow)/bin/python" >&2
  exit 1
fi
export PYTHONDONTWRITEBYTECODE=1 TF_CPP_MIN_LOG_LEVEL=2
exec "$OFFICIAL_TF_PYTHON" -m "$@"
