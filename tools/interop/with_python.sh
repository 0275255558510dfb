#!/usr/bin/env bash
# with_python.sh MODULE [ARGUMENT...]: runs a Python test that needs nothing but Python.
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
exec python3 -m "$@"
