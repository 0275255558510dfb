#!/usr/bin/env bash
# linear_test.sh LINEAR_MAIN: the example finds y = 2 a - 3 b + 1, and trains on when it is started again.
set -euo pipefail
model_dir=$TEST_TMPDIR/model
for steps in 500 1000; do
  "$1" "$model_dir" >"$TEST_TMPDIR/out"
  cat "$TEST_TMPDIR/out"
  awk '{ wanted = NR == 1 ? 2 : NR == 2 ? -3 : 1; if ($2 < wanted - 1e-4 || $2 > wanted + 1e-4) exit 1 }
       END { exit NR != 3 }' "$TEST_TMPDIR/out"
  [[ -f $model_dir/model.ckpt-$steps.index ]]
done
