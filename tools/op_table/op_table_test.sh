#!/usr/bin/env bash
# op_table_test.sh TABLE DOCUMENT TEST...: runs the op tests TEST..., *_emulated_test on emulated GPUs, makes the table of
# ops from what they ran with the program TABLE, and compares it with DOCUMENT. Under `bazel run` it overwrites DOCUMENT in
# the workspace instead. Where the CUDA backend was not built, for want of a toolkit, only what DOCUMENT says about the CPU
# is compared.
set -euo pipefail
table=$1 document=$2
shift 2

scratch=$(mktemp -d "${TEST_TMPDIR:-/tmp}/op_table.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
touch "$scratch/record" "$scratch/emulated"
unset XML_OUTPUT_FILE
for op_test in "$@"; do
  run=(env OP_TEST_RECORD="$scratch/record")
  [[ $op_test != *_emulated_test ]] || run=(env OP_TEST_RECORD="$scratch/emulated" OP_TEST_KIND=cuda)
  "${run[@]}" "$op_test" >"$scratch/log" 2>&1 || {
    cat "$scratch/log"
    exit 1
  }
done

status=0
"$table" "$scratch/record" "$scratch/emulated" >"$scratch/ops.md" || status=$?
cp "$document" "$scratch/expected.md"
if ! grep -q '| cuda |' "$scratch/ops.md"; then
  if [[ -n ${BUILD_WORKSPACE_DIRECTORY-} ]]; then
    echo "$document also lists the CUDA kernels: update it where the CUDA toolkit is installed"
    exit 1
  fi
  for file in expected.md ops.md; do
    sed -i -e '/| cuda |/d' -e '/^On the CPU only: /d' -e '$ { /^$/d }' "$scratch/$file"
  done
fi
if [[ -n ${BUILD_WORKSPACE_DIRECTORY-} ]]; then
  cp "$scratch/ops.md" "$BUILD_WORKSPACE_DIRECTORY/$document"
elif ! diff -u "$scratch/expected.md" "$scratch/ops.md"; then
  echo "$document is out of date: bazel run //tools/op_table:update_op_table"
  status=1
fi
exit $status
