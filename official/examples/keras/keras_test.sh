#!/usr/bin/env bash
# keras_test.sh KERAS_MAIN: the example learns that 1 is 1, with the same bits on one device and on two.
set -euo pipefail
"$1" >"$TEST_TMPDIR/one" 2>"$TEST_TMPDIR/log"
cat "$TEST_TMPDIR/one"
grep -q '^Epoch 5/5 - loss: ' <(cut -d' ' -f3- "$TEST_TMPDIR/log")
awk '/^epoch/ { if ($2 != epochs++ || $4 > last && epochs > 1) exit 1; last = $4 }
     /^evaluated/ { loss = $3 }
     /^predicted/ { one = $2 }
     END { exit !(epochs == 5 && loss < 1e-12 && one > 0.999999 && one < 1.000001) }' "$TEST_TMPDIR/one"
"$1" 2 >"$TEST_TMPDIR/two"
diff "$TEST_TMPDIR/one" "$TEST_TMPDIR/two"
status=0
"$1" none 2>"$TEST_TMPDIR/usage" || status=$?
[[ $status == 2 && $(<"$TEST_TMPDIR/usage") == 'usage: keras_main [DEVICES]' ]]
