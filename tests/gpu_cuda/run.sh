#!/bin/bash
# run.sh [sanitizers]: runs on a machine with an NVIDIA GPU, in the folder that scripts/cuda_check made. Every step has a
# deadline. With the word, the families' kernels under the tools of CUDA's compute-sanitizer, and nothing else. scripts/gpu-bench is run
# by itself: nothing else may use the GPU then.
cd "$(dirname "$0")" || exit
C=$PWD
K=$(cat kernel-folder) # where driver_api_tests looks for its kernels
mkdir -p "$K" && cp kernels/*.spv "$K"/
export LD_LIBRARY_PATH=$C/lib:$LD_LIBRARY_PATH ZE_ENABLE_ALT_DRIVERS=$C/lib/libze_zefuse_cuda.so.1
OUT=${OUT:-$C}
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
step() {
  echo "== $1"
  local start
  start=$(date +%s%N)
  timeout -k 5 "${@:2}"
  echo "   exit status $? after $((($(date +%s%N) - start) / 1000000)) ms"
}
if [ "${1:-}" = sanitizers ]; then
  for tool in memcheck racecheck synccheck initcheck; do
    step "$tool" "${TOOL_S:-400}" compute-sanitizer --tool $tool --target-processes application-only --error-exitcode 9 --print-limit 20 \
      python3 families.py --small >"$OUT/$tool.txt" 2>&1 &
  done
  wait
  for tool in memcheck racecheck synccheck initcheck; do
    grep -E "families:|FAIL|ERROR SUMMARY|RACECHECK SUMMARY|exit status|Error:" "$OUT/$tool.txt" | sed "s/^/$tool: /" | tail -20
  done
  exit
fi
step math 90 ./math_check math_check.spv
step program 40 ./driver_loader_program "$K"
step program_intercept 40 env ZE_ENABLE_LOADER_INTERCEPT=1 ./driver_loader_program "$K"
V="ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1 ZE_ENABLE_HANDLE_LIFETIME=1"
# shellcheck disable=SC2086
step program_validation 40 env $V ./driver_loader_program "$K"
# shellcheck disable=SC2086
step program_intercept_validation 40 env ZE_ENABLE_LOADER_INTERCEPT=1 $V ./driver_loader_program "$K"
step launch_overhead 40 ./launch_overhead "$K"
# Each in a process of its own: one that hangs or loses the device harms no other.
results=$(mktemp -d)
export results
one() {
  timeout -k 2 20 ./driver_api_tests --gtest_filter="$1" >"$results/$2.out" 2>&1
  local status=$?
  if [ $status != 0 ]; then
    echo "FAIL($status) $1"
    grep -vE '^\[|^Running|^Note' "$results/$2.out" | head -12
  elif grep -q '\[  SKIPPED' "$results/$2.out"; then
    echo "SKIP $1"
  else
    echo "PASS $1"
  fi >"$results/$2.txt"
}
export -f one
./driver_api_tests --gtest_list_tests | awk '/^[^ ]/{s=$1} /^ /{print s $1}' >"$results/list"
ZEFUSE_CUDA_DRIVER_LOG=1 timeout 240 xargs -a "$results/list" -P 6 -I{} bash -c 'one {} $(echo {} | tr / _)'
cat "$results"/*.txt >"$OUT/api.txt"
echo "== API tests: $(grep -c ^PASS "$OUT/api.txt") pass, $(grep -c ^SKIP "$OUT/api.txt") skipped, $(grep -c ^FAIL "$OUT/api.txt") fail, of $(wc -l <"$results/list")"
grep -vE '^(PASS|SKIP)' "$OUT/api.txt"
# With zefuse's wheel installed: whole models.
if python3 -c 'import zefuse' 2>/dev/null; then
  # Its libraries alone: run_package fails where a compiler, Python or torch is loaded.
  libraries=$(python3 -c 'import os, zefuse; print(os.path.dirname(zefuse.__file__))')/lib
  step package 60 env -u ZE_ENABLE_ALT_DRIVERS LD_LIBRARY_PATH="$libraries" ./run_package package gpu:0
  step doctor 60 python3 -m zefuse doctor
  step selftest 300 python3 -m zefuse selftest --device gpu:0 --report "$OUT/selftest.json"
  step families 300 python3 families.py | tee "$OUT/families.txt"
  step models "${MODELS_S:-400}" python3 models.py | tee "$OUT/models.txt"
fi
