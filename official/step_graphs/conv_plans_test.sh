#!/usr/bin/env bash
# conv_plans_test.sh: cuDNN has plans for the convolutions of all models on the GPUs of cards/, and they are those that
# conv_plans_cudnnVERSION.txt lists. Under `bazel run` it writes that file in the workspace instead.
set -euo pipefail
cd official/step_graphs

if [[ ! -x conv_plans_main ]]; then
  echo "skipped: conv_plans_main was not built, for want of the CUDA toolkit"
  exit 0
fi
plans=$(mktemp "${TEST_TMPDIR:-/tmp}/conv_plans.XXXXXX")
trap 'rm -f "$plans"' EXIT
status=0
./conv_plans_main convolutions.txt cards/*.json >"$plans" || status=$?
if [[ $status == 127 ]]; then
  echo "skipped: the dynamic loader does not find cuDNN"
  exit 0
fi
[[ $status == 0 ]] || exit "$status"

# Before compute capability 8.0 GPUs have no arithmetic in bfloat16.
if grep ': none$' "$plans" | grep -v '^t4 bfloat16 '; then
  echo "these convolutions cannot be computed"
  exit 1
fi
version=$(sed -n 's/^cuDNN //p' "$plans")
expected=conv_plans_cudnn$version.txt
if [[ -n ${BUILD_WORKSPACE_DIRECTORY-} ]]; then
  cp "$plans" "$BUILD_WORKSPACE_DIRECTORY/official/step_graphs/$expected"
  echo "$expected is written"
elif [[ ! -f $expected ]]; then
  echo "skipped: there is no file for cuDNN $version. To write it: bazel run //official/step_graphs:conv_plans_test"
elif ! diff -U0 "$expected" "$plans"; then
  echo "$expected is out of date: bazel run //official/step_graphs:conv_plans_test"
  exit 1
fi
