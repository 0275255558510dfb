#!/usr/bin/env bash
# op_table_test.sh TABLE DOCUMENT TEST...: runs the op tests TEST..., makes the table of ops from what they ran with the
# program TABLE, and compares it with DOCUMENT. Under `bazel run` it overwrites DOCUMENT in the workspace instead.
set -euo pipefail
table=$1 document=$2
shift 2

scratch=$(mktemp -d "${TEST_TMPDIR:-/tmp}/op_table.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export OP_TEST_RECORD=$scratch/record
unset XML_OUTPUT_FILE
for op_test in "$@"; do
  "$op_test" >"$scratch/log" 2>&1 || {
    cat "$scratch/log"
    exit 1
  }
done

status=0
"$table" "$OP_TEST_RECORD" >"$scratch/ops.md" || status=$?
if [[ -n ${BUILD_WORKSPACE_DIRECTORY-} ]]; then
  cp "$scratch/ops.md" "$BUILD_WORKSPACE_DIRECTORY/$document"
elif ! diff -u "$document" "$scratch/ops.md"; then
  echo "$document is out of date: bazel run //utils/compute/ops:update_op_table"
  status=1
fi
exit $status
