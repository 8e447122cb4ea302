#!/bin/bash
# run.sh [PART ...]: runs on a machine with an NVIDIA GPU, in the folder that scripts/cuda_check made; ends with a table (check.py,
# which names the parts: `run.sh sanitizers` is the kernels of the families under each tool of CUDA's compute-sanitizer). scripts/gpu-bench
# is run by itself: nothing else may use the GPU then.
cd "$(dirname "$0")" || exit
export LD_LIBRARY_PATH=$PWD/lib:$LD_LIBRARY_PATH PYTHONUNBUFFERED=1
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
exec python3 check.py "$@"
