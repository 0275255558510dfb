#!/usr/bin/env bash
# run.sh [OUTPUT_DIR [STEP...]]: tests and measures this archive's programs on this machine's GPU: all steps in order, or
# those named. Needs an NVIDIA driver and cuDNN, cuBLAS and NCCL anywhere; the comparison with PyTorch needs it in
# $PYTHON (default python3). A step is ended after $STEP_SECONDS (default 400).
# Leaves in OUTPUT_DIR (default: gpu_results): STEP.txt, what a step printed; STEP.json or the folder STEP, its results;
# summary.txt and summary.json. The exit status is 0 only if every step's is.
set -euo pipefail
root=$(dirname "$(readlink -f "$0")")
out=$(mkdir -p "${1:-gpu_results}" && cd "${1:-gpu_results}" && pwd)
shift $(($# ? 1 : 0))
wanted=("$@")

export root out PYTHON=${PYTHON:-python3}
CUDA_LIBRARY_FOLDERS=$("$root/find_cuda_libraries")
TEST_TMPDIR=$(mktemp -d)
export CUDA_LIBRARY_FOLDERS TEST_TMPDIR
trap 'rm -rf "$TEST_TMPDIR"' EXIT

machine() {
  local status=0
  nvidia-smi || true
  if [[ ! -e /dev/nvidiactl && ! -e /dev/dxg ]]; then
    echo "run.sh: no GPU: no NVIDIA driver is loaded"
    status=1
  fi
  grep -m1 'model name' /proc/cpuinfo
  echo "$(nproc) processors; $(ldd --version | head -n1)"
  "$PYTHON" -c 'import sys, torch; print("Python", sys.version, "PyTorch", torch.__version__)' || true
  echo "folders of CUDA libraries: ${CUDA_LIBRARY_FOLDERS:-those of the dynamic loader}"
  for file in "$root"/programs/*; do
    if LD_LIBRARY_PATH=$root/lib${CUDA_LIBRARY_FOLDERS:+:$CUDA_LIBRARY_FOLDERS}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ldd "$file" 2>&1 | grep 'not found'; then
      echo "run.sh: ${file##*/} is missing the libraries named above"
      status=1
    fi
  done
  return $status
}

# Runs the tests listed in a file; fails if one does, after all of them.
run_tests() {
  local name failed=()
  while read -r name; do
    echo "== $name"
    "$root/bin/$name" || failed+=("$name")
  done <"$root/$1"
  ((!${#failed[@]})) || echo "run.sh: failed: ${failed[*]}"
  ((!${#failed[@]}))
}

op_tests() {
  local status=0
  export OP_TEST_RECORD=$out/op_test_record.txt
  rm -f "$OP_TEST_RECORD"
  run_tests op_tests.txt || status=1
  "$root/bin/op_table" "$OP_TEST_RECORD" >"$out/ops.md" || status=1
  if ! grep ' cuda ' "$OP_TEST_RECORD" >"$TEST_TMPDIR/cuda"; then
    echo "run.sh: no op ran on a GPU:"
    # Succeeds, and with -s prints why there is no device.
    "$root/bin/cuda_backend_test" -s "Devices are there*" | sed -n '/no GPU\|cannot load\|NOT_FOUND/p' | sort -u
    return 1
  fi
  echo "$(wc -l <"$TEST_TMPDIR/cuda") kernels ran on a GPU, of $(cut -d' ' -f1,3 "$TEST_TMPDIR/cuda" | sort -u | wc -l) ops and types"
  return $status
}

model_tests() { run_tests model_tests.txt; }

parity() { "$PYTHON" "$root/tools/gpu/parity.py" "$root/bin/mnist_main" "$out/parity"; }

# bench PEERS DTYPE: against the peers whose name matches.
bench() {
  "$PYTHON" "$root/tools/peers/bench.py" mnist --device=gpu --dtype="$2" --binary="$root/bin/mnist_main" \
    --python="$(command -v "$PYTHON")" --peers="PyTorch $1.*$2" --warmup_steps=200 --steps=2000 \
    --json="$out/bench_$1_$2.json"
}
bench_eager_fp32() { bench eager fp32; }
bench_eager_bf16() { bench eager bf16; }
bench_compiled_fp32() { bench compiled fp32; }
bench_compiled_bf16() { bench compiled bf16; }
# Where there is no PyTorch.
bench_alone_fp32() { bench alone fp32; }
bench_alone_bf16() { bench alone bf16; }

# The hook writes the first step and the 1001st.
profile() {
  local status=0
  "$root/bin/mnist_main" --num_gpus=1 --dtype="$1" --use_synthetic_data --max_train_steps=1010 --hooks=ProfilerHook \
    --model_dir="$TEST_TMPDIR/profile_$1" --log_format=simple || status=$?
  ((status)) || { mkdir -p "$out/profile_$1" && cp "$TEST_TMPDIR/profile_$1"/timeline-*.json "$out/profile_$1"; }
  return $status
}
profile_fp32() { profile fp32; }
profile_bf16() { profile bf16; }

modes=(eager compiled)
"$PYTHON" -c 'import torch' 2>/dev/null || modes=(alone)
steps=(machine op_tests model_tests parity)
for mode in "${modes[@]}"; do steps+=("bench_${mode}_fp32" "bench_${mode}_bf16"); done
steps+=(profile_fp32 profile_bf16)
for step in "${wanted[@]}"; do
  [[ " ${steps[*]} " == *" $step "* ]] || { echo "run.sh: no step $step; there are: ${steps[*]}" >&2 && exit 2; }
done
((!${#wanted[@]})) || steps=("${wanted[@]}")

while read -r _ _ name; do export -f "${name?}"; done < <(declare -F)
failures=0 json=()
: >"$out/summary.txt"
for step in "${steps[@]}"; do
  echo "== $step" >&2
  SECONDS=0 status=0
  timeout "${STEP_SECONDS:-400}" bash -uo pipefail -c "$step" </dev/null >"$out/$step.txt" 2>&1 || status=$?
  ((!status)) || failures=$((failures + 1))
  last=$(tail -n1 "$out/$step.txt" | tr -d '\r' | cut -c1-160)
  printf '%-20s exit status %3d %5d s  %s\n' "$step" "$status" "$SECONDS" "$last" | tee -a "$out/summary.txt"
  json+=("{\"step\": \"$step\", \"exit_status\": $status, \"seconds\": $SECONDS}")
done
(IFS=, && echo "[${json[*]}]") >"$out/summary.json"
echo "${#steps[@]} steps, $failures failed; results in $out" | tee -a "$out/summary.txt"
((!failures))
