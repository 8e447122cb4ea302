"""scripts/setup on recorded systems (tests/systems): the packages that their archives have, their apt sources, and stand-ins for
apt, dpkg and pip. Nothing is downloaded or installed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ROOT / "tests" / "systems"
NAMES = ("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04")
SCRIPTS = ("setup", "systems.sh", "systems.txt", "lib.sh", "versions.env", "debian-packages.txt")
LLVM = ("clang-22", "lld-22", "libclang-rt-22-dev", "clang-tidy-22", "clang-format-22", "llvm-22-dev", "llvm-22-tools")
LLVM += ("libmlir-22-dev", "mlir-22-tools", "liblld-22-dev")

TOOLS = {
    "dpkg-query": 'for p; do grep "^$p " "$STATE/installed" | sed "s/^/installed /"; done; true',
    # least version in $2, as asked: dpkg --compare-versions A ge B
    "dpkg": '[ "$(printf "%s\\n%s\\n" "$2" "$4" | sort -V | head -n 1)" = "$4" ]',
    "apt-cache": 'shift; for p; do v=$(grep "^$p " "$STATE/known" | head -n 1 | cut -d" " -f2)\n'
    'printf "%s:\\n  Installed: (none)\\n  Candidate: %s\\n" "$p" "${v:-(none)}"; done',
    "apt-get": """echo "apt-get $*" >> "$STATE/log"
case "$*" in
  *update*) "$PYTHON_OF_TEST" "$STATE/update.py" "$STATE" "$SYSTEM_ROOT";;
  *install*) take=
    for p; do [ -z "$take" ] || case "$p" in -*) ;; *) echo "$p 99" >> "$STATE/installed";; esac; [ "$p" != install ] || take=1; done;;
esac""",
    "sudo": '[ "$SUDO" = yes ] || exit 1; shift; exec "$@"',
    "apt-helper": 'for last; do :; done; cp "$KEY" "$last"',
}

# What `apt-get update` learns from the sources.
UPDATE = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "python")!r})
from zefuse.installing.apt_sources import read_sources
state, system = map(Path, sys.argv[1:])
suites = {{(suite, part) for entry in read_sources(system) for suite in entry.suites for part in entry.components}}
lines = (state / "packages").read_text().splitlines(keepends=True)
(state / "known").write_text("".join(line for line in lines if line[0] != "#" and tuple(line.split()[2:4]) in suites))
"""


class Checkout:
    """A copy of scripts/ and a recorded system. What apt knows is what the archive had in the suites that its sources name."""

    def __init__(self, folder: Path, system: str) -> None:
        self.folder, self.state, self.system = folder, folder / "state", folder / "system"
        (folder / "scripts").mkdir()
        for name in SCRIPTS:
            shutil.copy(ROOT / "scripts" / name, folder / "scripts")
        for name in ("requirements.lock", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        (folder / "python" / "zefuse").mkdir(parents=True)
        (folder / "python" / "zefuse" / "aot.py").touch()
        shutil.copytree(SYSTEMS / system, self.system)
        self.state.mkdir()
        (self.state / "installed").touch()
        (self.state / "log").touch()
        (self.state / "packages").write_text(
            (SYSTEMS / system / "packages.txt").read_text() if (SYSTEMS / system / "packages.txt").exists() else ""
        )
        (self.state / "update.py").write_text(UPDATE)
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name, text in TOOLS.items():
            self.program(self.tools / name, text)
        (folder / ".venv" / "bin").mkdir(parents=True)
        self.program(folder / ".venv" / "bin" / "python", 'echo "pip $*" >> "$STATE/log"')
        self.environment = {"KEY": "/nowhere", "SUDO": "yes"}

    @staticmethod
    def program(file: Path, text: str) -> None:
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def run(self, script: str = "scripts/setup", **options: object) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.tools}:/usr/bin:/bin",
            "STATE": str(self.state),
            "SYSTEM_ROOT": str(self.system),
            "APT_HELPER": str(self.tools / "apt-helper"),
            "PYTHON_OF_TEST": sys.executable,
            **self.environment,
        }
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            **options,
        )  # type: ignore[call-overload]

    def log(self) -> str:
        return (self.state / "log").read_text()

    def installed(self) -> set[str]:
        return {line.split()[0] for line in (self.state / "installed").read_text().splitlines()}

    @property
    def added(self) -> Path:
        return self.system / "etc/apt/sources.list.d/zefuse.list"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below tmp_path, which other users may not enter."""
    with tempfile.TemporaryDirectory(prefix="zefuse-setup-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def required(python: str) -> list[str]:
    text = (ROOT / "scripts" / "debian-packages.txt").read_text().replace("@LLVM@", "22").replace("@PYTHON@", python)
    return re.findall(r"^([a-z0-9+.-]+)", text, re.MULTILINE)


@pytest.mark.parametrize(("system", "python"), [("debian-12", "3.11"), ("debian-13", "3.13")])
def test_debian_has_all(folder: Path, system: str, python: str) -> None:
    checkout = Checkout(folder, system)
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    assert set(required(python)) <= checkout.installed()
    assert not checkout.added.exists()
    assert "pip install" in checkout.log()
    lines = len(checkout.log().splitlines())
    again = checkout.run()
    assert (again.returncode, again.stdout, len(checkout.log().splitlines())) == (0, "", lines), "not idempotent"


def test_python_packages_are_installed_beside_apts(folder: Path) -> None:
    checkout = Checkout(folder, "debian-12")
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    lines = checkout.log().splitlines()
    python, rest = [line for line in lines if line.startswith("apt-get") and " install " in line][:2]
    assert python.endswith(" python3.11-venv python3.11-dev") and " cmake " in rest
    pip = [line for line in lines if line.startswith("pip")]
    assert len(pip) == 2 and "-r " in pip[0] and "-e " in pip[1]
    assert lines.index(pip[1]) > lines.index(rest), "zefuse was installed before what it needs"


def test_a_module_that_was_moved_is_found_where_it_is(folder: Path) -> None:
    """The editable installation has a table of the files that were there."""
    checkout = Checkout(folder, "debian-12")
    assert checkout.run().returncode == 0
    lines = len(checkout.log().splitlines())
    package = folder / "python" / "zefuse"
    (package / "packages").mkdir()
    (package / "aot.py").rename(package / "packages" / "aot.py")
    assert checkout.run().returncode == 0
    (made,) = checkout.log().splitlines()[lines:]
    assert made.startswith("pip ") and f"-e {folder}" in made


def test_pip_that_fails_ends_the_setup_and_is_tried_again(folder: Path) -> None:
    checkout = Checkout(folder, "debian-12")
    venv_python = folder / ".venv" / "bin" / "python"
    works = venv_python.read_text()
    checkout.program(venv_python, 'echo "no matching distribution"; exit 1')
    done = checkout.run()
    assert done.returncode == 1 and "no matching distribution" in done.stdout
    assert "error: the Python packages could not be installed" in done.stderr
    assert "cmake" in checkout.installed()
    venv_python.write_text(works)
    again = checkout.run()
    assert again.returncode == 0 and "pip install" in checkout.log()


def test_an_optional_package_may_be_missing(folder: Path) -> None:
    """Debian 13 has no driver for Intel's GPUs."""
    done = Checkout(folder, "debian-13").run()
    assert "apt has no intel-opencl-icd): tests that need them will be skipped" in done.stdout


def test_debians_security_suite_is_added_where_only_the_release_is_listed(folder: Path) -> None:
    """As debootstrap leaves it."""
    checkout = Checkout(folder, "debian-12")
    (checkout.system / "etc/apt/sources.list.d/debian.sources").unlink()
    (checkout.system / "etc/apt/sources.list").write_text(
        "deb [check-date=no] http://mirror.example/debian bookworm main\n"
    )
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    assert (
        checkout.added.read_text()
        == "deb [check-date=no] http://mirror.example/debian-security bookworm-security main\n"
    )
    assert "llvm-22-dev" in checkout.installed()


def llvm_archive(checkout: Checkout, fingerprint: str | None = None) -> str:
    """LLVM's archive as it would be reached, with a key made here. Returns the key's fingerprint."""
    if shutil.which("gpg") is None:
        pytest.skip("no gpg, which makes the key")
    home = checkout.folder / "gpg"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "-q", "--passphrase", "", "--pinentry-mode", "loopback"]
    subprocess.run(
        [*gpg, "--quick-gen-key", "zefuse@test", "ed25519", "sign", "never"], check=True, capture_output=True
    )
    listing = subprocess.run([*gpg, "--with-colons", "-k"], check=True, capture_output=True, text=True).stdout
    made = re.findall(r"^fpr:+([0-9A-F]{40}):", listing, re.MULTILINE)[0]
    key = checkout.folder / "key.asc"
    key.write_bytes(subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True).stdout)
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)
    checkout.environment |= {"KEY": str(key), "LLVM_APT": "https://mirror.example/llvm/"}
    script = checkout.folder / "scripts" / "systems.sh"
    script.write_text(re.sub(r"(?m)^LLVM_APT_KEY=.*", f"LLVM_APT_KEY={fingerprint or made}", script.read_text()))
    with (checkout.state / "packages").open("a") as file:
        file.writelines(f"{name} 1:22.1.8 llvm-toolchain-noble-22 main\n" for name in LLVM)
    (checkout.state / "installed").write_text("gpg 2\nca-certificates 2\n")
    return made


def test_ubuntu_takes_llvm_from_its_project(folder: Path) -> None:
    checkout = Checkout(folder, "ubuntu-24.04")
    fingerprint = llvm_archive(checkout)
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    keyring = checkout.system / "etc/apt/keyrings/zefuse-llvm.gpg"
    assert checkout.added.read_text() == (
        "deb [arch=amd64 signed-by=/etc/apt/keyrings/zefuse-llvm.gpg] https://mirror.example/llvm/noble/ llvm-toolchain-noble-22 main\n"
    )
    shown = subprocess.run(
        ["gpg", "--homedir", str(folder), "--with-colons", "--show-keys", str(keyring)], capture_output=True, text=True
    ).stdout
    assert fingerprint in shown
    assert set(required("3.12")) <= checkout.installed()


def test_another_key_is_refused(folder: Path) -> None:
    checkout = Checkout(folder, "ubuntu-24.04")
    llvm_archive(checkout, fingerprint="6084F3CF814B57C1CF12EFD515CF4D18AF4F7421")
    done = checkout.run()
    assert done.returncode == 1
    assert (
        "https://mirror.example/llvm/llvm-snapshot.gpg.key is not the key 6084F3CF814B57C1CF12EFD515CF4D18AF4F7421"
        in done.stderr
    )
    assert not checkout.added.exists() and not (checkout.system / "etc/apt/keyrings").exists()
    assert "llvm-22-dev" not in checkout.installed()


@pytest.mark.parametrize(
    ("system", "named", "there"),
    [
        ("ubuntu-22.04", (*LLVM, "libze-dev", "libze1", "cmake (3.25 or newer)"), "jammy"),
        ("ubuntu-24.04", LLVM, "noble"),
    ],
)
def test_what_cannot_be_had_is_named_with_where_it_was_looked_for(
    folder: Path, system: str, named: tuple[str, ...], there: str
) -> None:
    checkout = Checkout(folder, system)
    done = checkout.run()
    assert done.returncode == 1
    message = re.sub(r"\s+", " ", done.stderr)
    listed = re.search(r"apt has no (.*) Looked in:", message)
    assert listed and sorted(re.findall(r"\S+(?: \([^)]*\))?", listed[1])) == sorted(named)
    assert f"http://archive.ubuntu.com/ubuntu/ {there} " in message
    assert (
        f"https://apt.llvm.org/{there}/ llvm-toolchain-{there}-22 main: https://apt.llvm.org/llvm-snapshot.gpg.key could not"
        in message
    )
    assert "docs/install.md" in message
    assert not checkout.added.exists()
    assert "cmake" not in checkout.installed(), "a part was installed"


def test_ubuntus_universe_is_added(folder: Path) -> None:
    """A minimal root lists the component main alone."""
    checkout = Checkout(folder, "ubuntu-24.04")
    llvm_archive(checkout)
    (checkout.system / "etc/apt/sources.list.d/ubuntu.sources").unlink()
    (checkout.system / "etc/apt/sources.list").write_text("deb http://archive.ubuntu.com/ubuntu noble main\n")
    done = checkout.run()
    assert done.returncode == 0, done.stderr
    assert checkout.added.read_text().splitlines()[0] == "deb http://archive.ubuntu.com/ubuntu noble universe"


def test_other_systems_hear_that_the_wheel_serves(folder: Path) -> None:
    checkout = Checkout(folder, "fedora-42")
    (checkout.tools / "dpkg-query").unlink()
    checkout.environment["PATH"] = str(checkout.tools)
    for name in ("bash", "sed", "dirname", "cat", "paste"):
        (checkout.tools / name).symlink_to(shutil.which(name) or name)
    done = checkout.run()
    assert done.returncode == 1
    assert (
        "is for Debian 12, Debian 13, Ubuntu 22.04, Ubuntu 24.04, and this is Fedora Linux 42 (Container Image), without dpkg. The wheel"
        in (done.stderr)
    )


def test_an_unknown_release_hears_what_is_missing(folder: Path) -> None:
    checkout = Checkout(folder, "debian-12")
    (checkout.system / "etc/os-release").write_text(
        'ID=debian\nVERSION_ID="11"\nPRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\n'
    )
    done = checkout.run()
    assert done.returncode == 1 and checkout.log() == ""
    assert re.search(
        r"this is Debian GNU/Linux 11 \(bullseye\)\. Missing here: cmake \(3.25 or newer\) .*The wheel", done.stderr
    )


def test_a_system_made_from_ubuntu_counts_as_it(folder: Path) -> None:
    checkout = Checkout(folder, "linuxmint-22")
    done = checkout.run(
        "source scripts/lib.sh; source scripts/systems.sh; read_system; echo $SYSTEM $PYTHON_VERSION $(own_mirror)"
    )
    assert done.stdout == "ubuntu-24.04 3.12 http://archive.ubuntu.com/ubuntu\n", done.stderr


def test_without_rights_one_message_says_what_an_administrator_does(folder: Path) -> None:
    checkout = Checkout(folder, "ubuntu-24.04")
    checkout.environment["SUDO"] = "no"
    for file in [folder, *folder.rglob("*")]:
        file.chmod(0o777)
    done = checkout.run(**({"user": 65534} if os.geteuid() == 0 else {}))
    assert done.returncode == 1 and checkout.log() == ""
    assert "apt-get install -y cmake ninja-build" in done.stderr
    assert "https://apt.llvm.org/noble/ llvm-toolchain-noble-22 main" in done.stderr


@pytest.mark.parametrize("system", NAMES)
def test_the_python_of_a_system_is_its_own(system: str) -> None:
    """But for Ubuntu 22.04's 3.10, which is too old; its universe has 3.11."""
    row = next(
        line.split() for line in (ROOT / "scripts/systems.txt").read_text().splitlines() if line.startswith(system)
    )
    packages = (SYSTEMS / system / "packages.txt").read_text()
    assert f"\npython{row[2]}-venv " in packages
    if system != "ubuntu-22.04":
        assert re.search(rf"(?m)^python3 {re.escape(row[2])}\.", packages)


def test_locked_packages_take_the_oldest_python() -> None:
    """Debian 12's 3.11.2: pip refuses what asks for more, which a newer Python here would hide."""
    oldest = re.search(r"(?m)^python3 (3\.11\.\d+)", (SYSTEMS / "debian-12" / "packages.txt").read_text())
    assert oldest
    locked = re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements.lock").read_text())
    wanted = {name: importlib.metadata.metadata(name).get("Requires-Python") or "" for name in locked}
    assert not {name: wants for name, wants in wanted.items() if oldest[1] not in SpecifierSet(wants)}
