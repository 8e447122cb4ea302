# syntax=docker/dockerfile:1
# zefuse on Intel GPUs, from the wheel in build/wheels (make wheel, or one that you were given): Level Zero's loader, Intel's
# compute runtime and its offline compiler are the distribution's. docs/install.md, Containers.
#
#   docker build -f containers/intel-gpu.Dockerfile -t zefuse-gpu .
#   docker run --rm --device /dev/dri --group-add "$(stat -c %g /dev/dri/renderD128)" zefuse-gpu       # what it runs on
#   docker run --rm --device /dev/dxg -v /usr/lib/wsl:/usr/lib/wsl -e LD_LIBRARY_PATH=/usr/lib/wsl/lib zefuse-gpu   # WSL2

# The runtime's age decides which GPUs it knows: Ubuntu 24.04 has 23.43 (Meteor Lake, Arc A), 26.04 has 26.05 (Battlemage, Lunar
# Lake, Panther Lake) and Python 3.14. The wheel must be for the base's Python.
ARG BASE=ubuntu:24.04
FROM $BASE

RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      ca-certificates \
      intel-ocloc \
      libgomp1 \
      libze-intel-gpu1 \
      libze1 \
      python3 \
      python3-venv \
 && rm -rf /var/lib/apt/lists/*

# The distribution's own packages stay apart, as it asks for (PEP 668).
RUN python3 -m venv /opt/zefuse
ENV PATH=/opt/zefuse/bin:$PATH

# torch first: its CPU build serves, since zefuse moves the data to the GPU itself. TORCH_INDEX: another place that has it.
ARG TORCH=2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --index-url $TORCH_INDEX torch==$TORCH

# The wheel for this Python among those that are there, and never a package of that name from an index; what it needs beside torch
# is from pip's index.
RUN --mount=type=bind,source=build/wheels,target=/wheels \
    pip download -q --no-deps --no-index --find-links /wheels --dest /tmp/wheel zefuse \
 && pip install --no-cache-dir /tmp/wheel/*.whl \
 && rm -r /tmp/wheel

# Who may use a GPU is decided by the number of the host's group "render", which differs from host to host: docker run's
# --group-add gives it, or RENDER_GID at build time.
ARG RENDER_GID=993
RUN groupadd --system --non-unique --gid $RENDER_GID zefuse-render \
 && useradd --create-home --shell /bin/bash --groups zefuse-render zefuse \
 && install -d -o zefuse -g zefuse /cache /work
ENV ZEFUSE_CACHE_DIR=/cache
VOLUME /cache
WORKDIR /work
USER zefuse

# A build sees no GPU: this shows that the wheel works here.
RUN zefuse devices
CMD ["zefuse", "devices"]
