#!/usr/bin/env bash
# planted_race_test.sh BINARY: under the thread sanitizer the binary's race must be reported; other builds only run it.
binary=$1
output=$("$binary" 2>&1)
if ! grep -q __tsan_init "$binary"; then
  echo "not a build with the thread sanitizer; nothing to check"
  exit 0
fi
if grep -q "WARNING: ThreadSanitizer: data race" <<<"$output"; then
  echo "the planted race was reported"
  exit 0
fi
echo "the thread sanitizer did not report the planted race; its output was:"
echo "$output"
exit 1
