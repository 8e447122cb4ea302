#!/usr/bin/env python3
"""Runs a container file's steps in a root made by debootstrap, as root, where no container engine is there:

    debootstrap --variant=minbase bookworm /tmp/root http://deb.debian.org/debian
    containers/try_in_root.py containers/cpu.Dockerfile /tmp/root [TORCH_INDEX=file:///opt/wheels ...] [--skip REGEX]

The root stands for the base image and is written to; mounts are in a namespace of their own. NAME=VALUE is --build-arg, or the
environment of every step where the file declares no such ARG (pip's settings). --skip leaves out RUN steps (no wheel, no index).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "python"))
from dockerfile import parse  # noqa: E402

# $1 root, $2 folder of the build's context, $3 user, $4 working folder, $5 command; bind mounts as "source=target" after them
ENTER = r"""
set -e
mount --make-rprivate /
root=$1 context=$2 user=$3 folder=$4 command=$5; shift 5
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
: >>"$root/etc/resolv.conf"; cp -L /etc/resolv.conf "$root/tmp/.resolv.conf"; mount --bind "$root/tmp/.resolv.conf" "$root/etc/resolv.conf"
for bind; do mkdir -p "$root${bind#*=}"; mount --bind -o ro "$context/${bind%%=*}" "$root${bind#*=}"; done
uid=$(awk -F: -v u="$user" '$1 == u {print $3 ":" $4}' "$root/etc/passwd")
exec chroot --userspec="$uid" "$root" /bin/sh -c 'cd "$1" && eval "$2"' sh "$folder" "$command"
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--skip", default="$^", metavar="REGEX")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("error: chroot and mount need root")
    given = dict(setting.split("=", 1) for setting in options.settings)
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "DEBIAN_FRONTEND": "noninteractive",
    } | given
    user, folder = "root", "/"

    def expand(text: str) -> str:
        return re.sub(r"\$\{?(\w+)\}?", lambda found: environment.get(found[1], ""), text)

    for step in parse(options.file):
        print(f"==> {step.name} {' '.join([*step.flags, step.value])}", flush=True)
        if step.name in ("ARG", "ENV"):
            name, _, value = step.value.partition("=")
            if step.name == "ENV" or name not in given:
                environment[name] = expand(value)
        elif step.name == "USER":
            user, environment["HOME"] = step.value, f"/home/{step.value}"
        elif step.name == "WORKDIR":
            folder = step.value
        elif step.name == "COPY":
            sys.exit("error: COPY is not done here")
        elif step.name in ("RUN", "CMD"):
            import json

            command = step.value if step.name == "RUN" else " ".join(json.loads(step.value))
            if re.search(options.skip, command):
                print("    left out", flush=True)
                continue
            mounts = [dict(part.split("=") for part in flag[8:].split(",")) for flag in step.flags]
            binds = [f"{mount['source']}={mount['target']}" for mount in mounts]
            words = [
                "unshare",
                "-m",
                "sh",
                "-c",
                ENTER,
                "sh",
                str(options.root),
                str(HERE.parent),
                user,
                folder,
                command,
                *binds,
            ]
            done = subprocess.run(words, env=environment, check=False)
            if done.returncode != 0:
                sys.exit(f"error: {options.file.name}: this step ended with {done.returncode}")
    print("every step ended with 0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
