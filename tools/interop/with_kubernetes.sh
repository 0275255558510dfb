#!/usr/bin/env bash
# with_kubernetes.sh MODULE [ARGUMENT...]: runs a Python test in the environment that tools/test makes and names.
set -euo pipefail
if [[ -z ${OFFICIAL_KUBERNETES_PYTHON-} ]]; then
  echo "this test reads Kubernetes' manifests: run it by tools/test, or set OFFICIAL_KUBERNETES_PYTHON to" \
    "\$(tools/python_env kubernetes)/bin/python" >&2
  exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$OFFICIAL_KUBERNETES_PYTHON" -m "$@"
