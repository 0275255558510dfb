#!/usr/bin/env bash
# linear_test.sh LINEAR_MAIN: the example finds y = 2 a - 3 b + 1, also of points that it has not seen, and trains on when
# it is started again. The wanted lines: two of the kernel, the bias, the step and the loss, the values of (0, 0) and (1, 1).
set -euo pipefail
model_dir=$TEST_TMPDIR/model
for steps in 500 1000; do
  "$1" "$model_dir" >"$TEST_TMPDIR/out"
  cat "$TEST_TMPDIR/out"
  awk -v steps=$steps 'BEGIN { split("2 -3 1 " steps " 0 1 0", wanted) }
       $2 < wanted[NR] - 2e-4 || $2 > wanted[NR] + 2e-4 { wrong = 1 }
       { names = names " " $1 }
       END { exit wrong || names != " dense/kernel dense/kernel dense/bias global_step loss y y" }' "$TEST_TMPDIR/out"
  [[ -f $model_dir/model.ckpt-$steps.index ]]
done
# An argument that begins with - is no directory.
status=0
"$1" --help 2>"$TEST_TMPDIR/usage" || status=$?
[[ $status == 2 && $(<"$TEST_TMPDIR/usage") == "usage: linear_main DIRECTORY" && ! -e --help ]]
ls "$model_dir"/eval/events.out.tfevents.*
