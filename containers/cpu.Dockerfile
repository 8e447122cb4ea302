# syntax=docker/dockerfile:1
# zefuse on CPUs, from the wheel in build/wheels (make wheel, or one that you were given). docs/install.md, Containers.
#
#   docker build -f containers/cpu.Dockerfile -t zefuse-cpu .
#   docker run --rm zefuse-cpu                       # what it runs on
#   docker run --rm -v "$PWD:/work" zefuse-cpu python model.py

# Any Debian or Ubuntu whose Python the wheel is for, and for which it is new enough: Debian 12 has 3.11, Ubuntu 24.04 3.12, Debian 13 3.13.
ARG BASE=debian:12-slim
FROM $BASE

# libgomp: torch brings its own, programs in C with zefuse's use this one.
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      ca-certificates \
      libgomp1 \
      python3 \
      python3-venv \
 && rm -rf /var/lib/apt/lists/*

# The distribution's own packages stay apart, as it asks for (PEP 668).
RUN python3 -m venv /opt/zefuse
ENV PATH=/opt/zefuse/bin:$PATH

# torch first: its CPU build, a tenth of the one with CUDA. TORCH_INDEX: another place that has it.
ARG TORCH=2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --index-url $TORCH_INDEX torch==$TORCH

# The wheel for this Python among those that are there, and never a package of that name from an index; what it needs beside torch
# is from pip's index.
RUN --mount=type=bind,source=build/wheels,target=/wheels \
    pip download -q --no-deps --no-index --find-links /wheels --dest /tmp/wheel zefuse \
 && pip install --no-cache-dir /tmp/wheel/*.whl \
 && rm -r /tmp/wheel

# Plans and native code are kept here: a volume keeps them from one container to the next.
RUN useradd --create-home --shell /bin/bash zefuse \
 && install -d -o zefuse -g zefuse /cache /work
ENV ZEFUSE_CACHE_DIR=/cache
VOLUME /cache
WORKDIR /work
USER zefuse

# A wheel that does not work here fails the build, and says why.
RUN zefuse devices
CMD ["zefuse", "devices"]
