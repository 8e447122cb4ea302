"""Which mirror and keyring ``zefuse toolchain install`` uses, on recorded systems (tests/systems)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from zefuse.errors import NotFoundError
from zefuse.installing.apt_sources import find_mirror, read_sources

SYSTEMS = Path(__file__).resolve().parents[1] / "systems"
KEYRINGS = "usr/share/keyrings"
UBUNTU = "http://archive.ubuntu.com/ubuntu/"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def system(root: Path, name: str, *keyrings: str) -> Path:
    shutil.copytree(SYSTEMS / name, root)
    (root / KEYRINGS).mkdir(parents=True)
    (root / "etc/apt/sources.list.d").mkdir(parents=True, exist_ok=True)
    for keyring in keyrings:
        (root / KEYRINGS / keyring).touch()
    return root


@pytest.mark.parametrize(
    ("name", "keyring", "uri", "suite"),
    [
        ("debian-12", "debian-archive-keyring.gpg", "http://deb.debian.org/debian", "sid main"),
        ("debian-13", "debian-archive-keyring.pgp", "http://deb.debian.org/debian", "sid main"),
        ("ubuntu-22.04", "ubuntu-archive-keyring.gpg", UBUNTU, "devel main universe"),
        ("ubuntu-24.04", "ubuntu-archive-keyring.gpg", UBUNTU, "devel main universe"),
        ("linuxmint-22", "ubuntu-archive-keyring.gpg", UBUNTU.rstrip("/"), "devel main universe"),
    ],
)
def test_a_systems_own_mirror(root: Path, name: str, keyring: str, uri: str, suite: str) -> None:
    system(root, name, keyring)
    assert find_mirror(root).source() == f"deb [signed-by={root / KEYRINGS / keyring}] {uri} {suite}\n"


@pytest.mark.parametrize(
    ("name", "package"), [("debian-13", "debian-archive-keyring"), ("ubuntu-24.04", "ubuntu-keyring")]
)
def test_without_the_keyring_nothing_is_downloaded(root: Path, name: str, package: str) -> None:
    other = "ubuntu-archive-keyring.gpg" if name == "debian-13" else "debian-archive-keyring.gpg"
    system(root, name, other)
    with pytest.raises(NotFoundError, match=rf"archive-keyring.gpg, which verifies .* install {package}$"):
        find_mirror(root)


def test_a_system_without_apt(root: Path) -> None:
    system(root, "fedora-42", "debian-archive-keyring.gpg")
    with pytest.raises(NotFoundError, match="name no mirror of Debian or Ubuntu"):
        find_mirror(root)


def sources(root: Path, name: str, text: str) -> None:
    file = root / "etc/apt/sources.list.d" / name
    file.write_text(text)


def test_other_archives_are_not_taken_for_the_distribution(root: Path) -> None:
    """All of these come before the system's own sources, have a path or a codename like them, or both."""
    system(root, "ubuntu-24.04", "ubuntu-archive-keyring.gpg")
    sources(root, "a-ppa.list", "deb https://ppa.launchpadcontent.net/deadsnakes/ppa/ubuntu noble main\n")
    sources(
        root,
        "b-ppa.sources",
        "Types: deb\nURIs: https://ppa.launchpadcontent.net/x/ppa/ubuntu\nSuites: noble\nComponents: main\nSigned-By:\n"
        " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n",
    )
    sources(
        root,
        "docker.list",
        "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.gpg] https://download.docker.com/linux/ubuntu noble stable\n",
    )
    sources(
        root, "prod.list", "deb [signed-by=/usr/share/keyrings/prod.gpg] https://packages.example.com/prod noble main\n"
    )
    assert find_mirror(root).uri == UBUNTU
    (root / "etc/apt/sources.list.d/ubuntu.sources").unlink()
    (root / "etc/apt/sources.list.d/a-ppa.list").unlink()
    with pytest.raises(NotFoundError, match="name no mirror"):
        find_mirror(root)


def test_what_is_switched_off_is_not_read(root: Path) -> None:
    system(root, "debian-12", "debian-archive-keyring.gpg")
    sources(
        root,
        "debian.sources",
        "Enabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: bookworm\nComponents: main\n",
    )
    sources(
        root,
        "old.sources.save",
        "Types: deb\nURIs: http://saved.example/debian\nSuites: bookworm\nComponents: main\n",
    )
    sources(
        root,
        "one.list",
        "# deb http://comment.example/debian bookworm main\n"
        "deb-src http://source.example/debian bookworm main\n"
        "deb cdrom:[Debian GNU/Linux 12]/ bookworm main\n"
        "  deb [ arch=amd64 trusted=yes ] http://mirror.example/debian/ bookworm main contrib # ours\n",
    )
    (entry,) = read_sources(root)
    assert (entry.uri, entry.suites, entry.components, entry.signed_by) == (
        "http://mirror.example/debian/",
        ("bookworm",),
        ("main", "contrib"),
        "",
    )
    assert "trusted" not in find_mirror(root).source()


def test_a_mirror_with_another_address(root: Path) -> None:
    """As cloud images have it: known by its codename, and that comments and continued lines are read as apt reads them."""
    system(root, "debian-13", "debian-archive-keyring.pgp")
    sources(
        root,
        "debian.sources",
        "Types: deb deb-src\n# nearest first\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: trixie\n"
        "# and later ones\n trixie-updates\nComponents: main\n",
    )
    assert find_mirror(root).uri == "mirror+file:///etc/apt/mirrors/debian.list"
    assert [entry.suites for entry in read_sources(root)] == [("trixie", "trixie-updates")]


def test_a_debian_mirror_serves_another_system(root: Path) -> None:
    """As before there was anything but Debian: any system whose sources and keyrings have it."""
    system(root, "fedora-42", "debian-archive-keyring.gpg")
    sources(root, "debian.list", "deb http://deb.debian.org/debian sid main\n")
    assert find_mirror(root).distribution.name == "Debian"
