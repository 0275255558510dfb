#!/usr/bin/env bash
# processor_check_test.sh FILE...: the archives of the processor's check must hold no instruction that x86-64's first
# processors lack, and no function that other files could bring along, too.
set -euo pipefail
for file in "$@"; do
  [[ $file == *.a || $file == *.lo || $file == *.o ]] || continue
  checked=1
  # VEX and EVEX instructions begin with v; the others are BMI1, BMI2, LZCNT and MOVBE.
  code=$(objdump --disassemble --no-show-raw-insn "$file")
  if grep -E $'\t(v[a-z]|andn|bextr|bls|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|tzcnt|lzcnt|movbe)' <<<"$code"; then
    echo "$file: these instructions are missing on old processors"
    exit 1
  fi
  if nm --demangle "$file" | grep ' [WVu] '; then
    echo "$file: of these functions the linker may keep another file's copy"
    exit 1
  fi
done
if [[ -z ${checked-} ]]; then
  echo "no archive among $*"
  exit 1
fi
