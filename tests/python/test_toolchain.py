"""``zefuse toolchain install`` with stand-ins for apt and dpkg: nothing is downloaded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from zefuse import targets
from zefuse.cli import main
from zefuse.errors import DeviceError, NotFoundError
from zefuse.installing import apt_sources, toolchain

APT = """#!/bin/sh
echo "$*" >> "$LOG"
for word; do case "$word" in Dir::Etc::sourcelist=*) cat "${word#*=}" >> "$LOG";; esac; done
[ -n "$APT_FAILS" ] && { echo 'E: no such package' >&2; exit 100; }
for word; do case "$word" in Dir::Cache=*) cache="${word#Dir::Cache=}";; esac; done
case "$*" in *install*) : > "$cache/archives/intel-ocloc.deb";; esac
exit 0
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/bin" "$3/lib64"
for name in libocloc.so libigc.so.2 libc.so.6 libstdc++.so.6; do : > "$3/lib64/$name"; done
printf '#!/bin/sh\\nshift 2; exec "$@"\\n' > "$3/lib64/ld-linux-x86-64.so.2"
cat > "$3/usr/bin/ocloc-99" <<'END'
#!/bin/sh
case "$*" in
  query*) printf 99.7 > "$2";;
  *--help*) echo "  <device_type> can be: bmg-g21, version"; exit 1;;
  *) echo 99.7;;
esac
END
chmod +x "$3/usr/bin/ocloc-99" "$3/lib64/ld-linux-x86-64.so.2"
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in {"apt-get": APT, "dpkg": DPKG}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.delenv("ZEFUSE_OCLOC", raising=False)
    ubuntu = apt_sources.DISTRIBUTIONS["ubuntu"]
    mirror = apt_sources.Mirror(ubuntu, "http://mirror.example/ubuntu", Path("/keys/ubuntu.gpg"))
    monkeypatch.setattr(toolchain, "find_mirror", lambda: mirror)
    return folder


def install() -> Path:
    return toolchain.install(lambda text: None)


def test_the_compiler_is_found_afterwards_and_replaced(tools: Path, tmp_path: Path) -> None:
    for _ in range(2):
        command = install()
        assert command == tmp_path / "data" / "zefuse" / "toolchains" / "intel" / "ocloc"
    assert [path.name for path in command.parent.parent.iterdir()] == ["intel"], "what was half done is left"
    (found,) = [compiler for compiler in targets.compilers() if compiler["command"] == str(command)]
    assert found["version"] == "99.7" and found["products"] == ["bmg-g21"]
    asked = (tmp_path / "log").read_text()
    assert "--download-only install intel-ocloc" in asked and "Dir::Etc::sourceparts=/dev/null" in asked
    assert "\ndeb [signed-by=/keys/ubuntu.gpg] http://mirror.example/ubuntu devel main universe\n" in asked


def test_the_command_as_data(tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toolchain", "install", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"].endswith("toolchains/intel/ocloc") and "99.7" in found["version"]


def test_a_failure_says_how_to_repeat_it_and_leaves_the_old_one(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = install()
    monkeypatch.setenv("APT_FAILS", "1")
    with pytest.raises(
        DeviceError, match=r"(?s)apt-get ended with exit code 100.*to repeat: apt-get -o .*no such package"
    ):
        install()
    assert command.is_file() and [path.name for path in command.parent.parent.iterdir()] == ["intel"]


def test_without_apt_it_says_what_else_to_do(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools / "nowhere"))
    with pytest.raises(NotFoundError, match=r"no apt-get here.*ZEFUSE_OCLOC"):
        install()


def test_without_a_mirror_it_says_what_else_to_do(tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(toolchain, "find_mirror", lambda: apt_sources.find_mirror(tmp_path))
    with pytest.raises(NotFoundError, match=r"toolchain install: .*name no mirror.*ZEFUSE_OCLOC"):
        install()
