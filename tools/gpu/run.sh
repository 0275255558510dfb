#!/usr/bin/env bash
# run.sh [OUTPUT_DIR [STEP...]]: tests and measures this archive's programs on this machine's GPU: all steps in order,
# or those named; run.sh --steps lists them. Needs an NVIDIA driver and cuDNN, cuBLAS and for several GPUs NCCL
# anywhere, and Python 3; the comparison with PyTorch needs it in $PYTHON (default python3). The first steps tell the
# most: tests, parity with the CPU, our speed at each goal; then come the peers, the profiles and several GPUs. A step
# is ended after its own time, or after $STEP_SECONDS; after $RUN_SECONDS no step is started and the last is ended.
# Leaves in OUTPUT_DIR (default: gpu_results): STEP.txt, what a step printed; STEP.json or the folder STEP, its results;
# report.md, tables of all that was measured, and of what was not and why; summary.tsv and summary.json. All are up to
# date after each step; results of other steps in earlier runs stay.
# The exit status is 0 if no step failed, 1 if one did, 2 for a wrong command line, 3 if there is no GPU that can be
# used: then each step that needs one says so and does nothing.
set -euo pipefail
root=$(dirname "$(readlink -f "$0")")
export root PYTHON=${PYTHON:-python3} DID_NOTHING=77

if ! goals=$("$PYTHON" "$root/tools/gpu/goals.py"); then
  echo "run.sh: Python 3 is needed, and $PYTHON is none" >&2
  exit 2
fi
models=(mnist resnet transformer ncf)
steps=(machine op_tests "${models[@]/#/parity_}")
for goal in $goals; do steps+=("ours_$goal"); done
steps+=(jpeg graphs model_tests)
for goal in $goals; do steps+=("peers_$goal"); done
steps+=("${models[@]/#/profile_}" "${models[@]/#/ncu_}" nccl copies)
if [[ ${1-} == --steps ]]; then
  printf '%s\n' "${steps[@]}"
  exit
fi
for step in "${@:2}"; do
  [[ " ${steps[*]} " == *" $step "* ]] || { echo "run.sh: no step $step; there are: ${steps[*]}" >&2 && exit 2; }
done
((!${#@} || ${#@} == 1)) || steps=("${@:2}")
out=$(mkdir -p "${1:-gpu_results}" && cd "${1:-gpu_results}" && pwd)
export out

CUDA_LIBRARY_FOLDERS=$("$root/find_cuda_libraries")
TEST_TMPDIR=$(mktemp -d)
libraries=$root/lib${CUDA_LIBRARY_FOLDERS:+:$CUDA_LIBRARY_FOLDERS}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CUDA_LIBRARY_FOLDERS TEST_TMPDIR libraries
trap 'rm -rf "$TEST_TMPDIR"' EXIT

# The seconds after which a step is ended.
limit() {
  case $1 in
    machine) echo 60 ;;
    op_tests | model_tests) echo 240 ;;
    jpeg) echo 180 ;;
    peers_*) echo 400 ;;
    *) echo 120 ;;
  esac
}

nothing() {
  echo "$*"
  exit "$DID_NOTHING"
}
needs_gpu() { [[ -z $no_gpu ]] || nothing "no GPU: $no_gpu"; }
needs_gpus() {
  needs_gpu
  local found
  found=$("$PYTHON" "$root/tools/gpu/machine.py" |
    "$PYTHON" -c 'import json, sys; print(len(json.load(sys.stdin)["gpus"]))')
  ((found >= 2)) || nothing "one GPU: this needs two"
}

machine() {
  local status=0
  nvidia-smi || true
  echo "folders of CUDA libraries: ${CUDA_LIBRARY_FOLDERS:-those of the dynamic loader}"
  "$PYTHON" "$root/tools/gpu/machine.py" | tee "$out/machine.json" || status=1
  # What a plan of cuDNN can be made from without the GPU.
  "$PYTHON" - "$out" <<'EOF' || status=1
import json, sys
machine = json.load(open(f"{sys.argv[1]}/machine.json"))
for i, (driver, cudnn) in enumerate(zip(machine["gpus"], machine["cudnn_device_properties"])):
    json.dump(cudnn or driver, open(f"{sys.argv[1]}/device_{i}.json", "w"))
EOF
  for file in "$root"/programs/*; do
    if LD_LIBRARY_PATH=$libraries ldd "$file" 2>&1 | grep 'not found'; then
      echo "run.sh: ${file##*/} is missing the libraries named above"
      status=1
    fi
  done
  ((!status)) || return 1
  [[ -z $no_gpu ]] || nothing "no GPU: $no_gpu"
  "$root/bin/mnist_main" --version
}

# Runs the tests listed in a file; fails if one does, after all of them.
run_tests() {
  local name failed=()
  while read -r name; do
    echo "== $name"
    "$root/bin/$name" || failed+=("$name")
  done <"$root/$1"
  ((!${#failed[@]})) || echo "failed: ${failed[*]}"
  ((!${#failed[@]}))
}

op_tests() {
  needs_gpu
  local status=0 kinds
  export OP_TEST_RECORD=$out/op_test_record.txt
  rm -f "$OP_TEST_RECORD"
  run_tests op_tests.txt | tee "$TEST_TMPDIR/op_tests" || status=1
  "$root/bin/op_table" "$OP_TEST_RECORD" >"$out/ops.md" || status=1
  if ! grep ' cuda ' "$OP_TEST_RECORD" >"$TEST_TMPDIR/cuda"; then
    echo "no op ran on a GPU"
    return 1
  fi
  ((!status)) || tail -n1 "$TEST_TMPDIR/op_tests"
  kinds=$(cut -d' ' -f1,3 "$TEST_TMPDIR/cuda" | sort -u | wc -l)
  echo "$(wc -l <"$TEST_TMPDIR/cuda") kernels ran on a GPU, of $kinds ops and types"
  return $status
}

model_tests() {
  needs_gpu
  run_tests model_tests.txt || return 1
  echo "$(wc -l <"$root/model_tests.txt") programs of tests passed"
}

parity() {
  needs_gpu
  "$PYTHON" "$root/tools/gpu/parity.py" "$root/bin" "$1" "$out/parity_$1.json" 2>&1
}

# Recorded steps give the bits of those whose kernels are started one by one.
graphs() {
  needs_gpu
  local mode
  for mode in must off; do
    "$root/bin/mnist_main" --num_gpus=1 --use_synthetic_data --max_train_steps=50 --log_every_n_steps=1 \
      --cuda_graphs=$mode --model_dir="$TEST_TMPDIR/graphs_$mode" --log_format=simple || return 1
    grep '"loss"' "$TEST_TMPDIR/graphs_$mode/metric.log" |
      sed 's/.*"loss", "value": *\([^,}]*\).*/\1/' >"$TEST_TMPDIR/graphs_$mode.losses"
  done
  cmp "$TEST_TMPDIR"/graphs_{must,off}.losses || return 1
  echo "$(wc -l <"$TEST_TMPDIR/graphs_off.losses") losses of mnist are the same with and without CUDA graphs"
}

ours() {
  needs_gpu
  "$PYTHON" "$root/tools/gpu/goals.py" "$1" --programs="$root/bin" --json="$out/ours_$1.json" --alone
}
peers() {
  needs_gpu
  "$PYTHON" -c 'import torch' 2>/dev/null || nothing "no PyTorch in $PYTHON"
  "$PYTHON" "$root/tools/gpu/goals.py" "$1" --programs="$root/bin" --json="$out/peers_$1.json" --rounds="${ROUNDS:-1}"
}

# ResNet-50 in bf16, fed with photographs instead of one constant batch.
jpeg() {
  needs_gpu
  "$PYTHON" -c 'import PIL' 2>/dev/null || nothing "no Pillow in $PYTHON, which makes the files"
  "$PYTHON" "$root/tools/gpu/jpeg_input.py" --programs="$root/bin" --json="$out/jpeg.json"
}

model_flags() {
  case $1 in
    mnist) echo "--use_synthetic_data" ;;
    resnet) echo "--use_synthetic_data --resnet_size=50 --batch_size=256" ;;
    transformer) echo "--use_synthetic_data --param_set=base --batch_size=16384" ;;
    ncf) echo "--nodownload_if_missing --dataset=ml-1m --batch_size=98304" ;;
  esac
}

# train MODEL FOLDER STEPS [FLAG...]
train() {
  # shellcheck disable=SC2046  # flags are words
  "$root/bin/$1_main" --num_gpus=1 --dtype=bf16 $(model_flags "$1") --model_dir="$TEST_TMPDIR/$2" \
    --max_train_steps="$3" --train_epochs=1000000 --epochs_between_evals=1000000 --log_format=simple "${@:4}"
}

# The hook writes the first step and the 1001st.
profile() {
  needs_gpu
  train "$1" "profile_$1" 1010 --hooks=ProfilerHook || return 1
  mkdir -p "$out/profile_$1"
  cp "$TEST_TMPDIR/profile_$1"/timeline-*.json "$out/profile_$1"
}

# Kernels of a step, each started on its own, after a run that has chosen its algorithms.
ncu_kernels() {
  needs_gpu
  local ncu metrics=gpu__time_duration.sum,dram__bytes.sum,launch__registers_per_thread
  ncu=$(command -v ncu) || nothing "no ncu"
  metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed
  metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active
  train "$1" "ncu_$1" 5 || return 1
  LD_LIBRARY_PATH=$libraries \
    "$ncu" --clock-control none --csv --page raw --metrics "$metrics" --launch-skip "$2" --launch-count "$3" \
    --log-file "$out/ncu_$1.csv" "$root/programs/$1_main" --num_gpus=1 --dtype=bf16 $(model_flags "$1") \
    --model_dir="$TEST_TMPDIR/ncu_$1" --max_train_steps=12 --cuda_graphs=off --log_format=simple || return 1
  echo "$(grep -c '^"[0-9]' "$out/ncu_$1.csv" || true) kernels measured by ncu"
}

# parity_of_two ALGORITHM
parity_of_two() {
  needs_gpus
  local model
  for model in mnist transformer; do
    "$PYTHON" "$root/tools/gpu/parity.py" "$root/bin" "$model" "$out/$1_$model.json" --num_gpus=2 \
      --all_reduce_alg="$1" 2>&1 || return 1
  done
}
nccl() { parity_of_two nccl; }
copies() { parity_of_two hierarchical_copy; }

for model in "${models[@]}"; do
  eval "parity_$model() { parity $model; }; profile_$model() { profile $model; }"
done
ncu_mnist() { ncu_kernels mnist 200 120; }
ncu_resnet() { ncu_kernels resnet 2000 1100; }
ncu_transformer() { ncu_kernels transformer 2000 1000; }
ncu_ncf() { ncu_kernels ncf 200 120; }
for goal in $goals; do eval "ours_$goal() { ours $goal; }; peers_$goal() { peers $goal; }"; done

# The reason for which no GPU can be used, in the words of a program of ours; empty if one can.
no_gpu=$(timeout 60 "$root/bin/mnist_main" --num_gpus=1 --use_synthetic_data --max_train_steps=1 --log_format=none \
  --model_dir="$TEST_TMPDIR/probe" 2>&1 | sed -n 's/.*no GPU to train on (\(.*\)); use.*/\1/p' | head -n1 || true)
export no_gpu

report() { "$PYTHON" "$root/tools/gpu/report.py" "$out" >"$out/report.md"; }
# A line of summary.tsv, in the place of one of an earlier run.
note() {
  local line
  line=$(printf '%s\t%s\t%s\t%s' "$@")
  { grep -v "^$1"$'\t' "$out/summary.tsv" || true; } >"$TEST_TMPDIR/summary"
  echo "$line" | cat "$TEST_TMPDIR/summary" - >"$out/summary.tsv"
}

while read -r _ _ name; do export -f "${name?}"; done < <(declare -F)
touch "$out/summary.tsv"
failures=0 idle=0 begin=$(date +%s)
for step in "${steps[@]}"; do
  seconds=${STEP_SECONDS:-$(limit "$step")}
  left=$((${RUN_SECONDS:-1000000} - $(date +%s) + begin))
  if ((left <= 0)); then
    [[ -e $out/$step.txt ]] || note "$step" "$DID_NOTHING" 0 "no time was left; run.sh OUTPUT_DIR $step"
    idle=$((idle + 1))
    continue
  fi
  ((seconds <= left)) || seconds=$left
  echo "== $step" >&2
  rm -f "$out/$step.json"
  SECONDS=0 status=0
  timeout --kill-after=5 "$seconds" bash -uo pipefail -c "$step" </dev/null >"$out/$step.txt" 2>&1 || status=$?
  last=$({ grep -v '^[[:space:]]*$' "$out/$step.txt" || true; } | tail -n1 | tr -d '\r' | tr '\t' ' ' | cut -c1-160)
  case $status in
    0) ;;
    "$DID_NOTHING") idle=$((idle + 1)) ;;
    *) failures=$((failures + 1)) ;;
  esac
  ((status != 124 && status != 137)) || last="ended after $seconds s: $last"
  printf '%-26s exit status %3d %5d s  %s\n' "$step" "$status" "$SECONDS" "$last"
  note "$step" "$status" "$SECONDS" "$last"
  report
done
report
cat "$out/report.md"
echo "${#steps[@]} steps, $failures failed, $idle did nothing; results in $out"
((!failures)) || exit 1
[[ -z $no_gpu ]] || exit 3
