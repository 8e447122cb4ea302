# Shared by the scripts here (bash): messages, versions, where things are. Sourced, never run.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=versions.env
source "$ROOT/scripts/versions.env"
VENV=$ROOT/.venv
PRESET=${PRESET:-release}          # a folder under build/: release, asan
BUILD=$ROOT/build/$PRESET

# What clang-format looks after: everything but test kernels, whose layout is part of the test.
CPP_FILES=('*.cpp' '*.h' '*.hpp' '*.c' ':!third_party/*' ':!tests/unit/*/kernels/*')

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# How many compilers at once: one per core, at least 2 GB of memory each (files with MLIR headers need it).
jobs_for_build() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ {print int($2 / 2000000)}' /proc/meminfo 2>/dev/null || echo 4)
  ((memory < 1)) && memory=1
  echo "${JOBS:-$((cores < memory ? cores : memory))}"
}
