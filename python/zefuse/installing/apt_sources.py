"""apt's sources, read as apt reads them: which mirror of Debian or Ubuntu this system uses, and with which keyring what comes
from there is verified."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from zefuse.errors import NotFoundError


@dataclass(frozen=True)
class Distribution:
    name: str
    newest: str  # the suite that takes new versions first; every mirror has it
    components: str
    keyring: str  # of /usr/share/keyrings, without suffix; also the package that brings it but for Ubuntu
    keyring_package: str


DISTRIBUTIONS = {
    "debian": Distribution("Debian", "sid", "main", "debian-archive-keyring", "debian-archive-keyring"),
    "ubuntu": Distribution("Ubuntu", "devel", "main universe", "ubuntu-archive-keyring", "ubuntu-keyring"),
}


@dataclass(frozen=True)
class Entry:
    """One address of a one-line source or of a deb822 stanza."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str  # as it stands there, which may be a key itself; empty: any key that apt trusts


@dataclass(frozen=True)
class Mirror:
    distribution: Distribution
    uri: str
    keyring: Path

    def source(self) -> str:
        """The line for apt that names the distribution's newest suite on this mirror. Only its own keys are accepted."""
        return f"deb [signed-by={self.keyring}] {self.uri} {self.distribution.newest} {self.distribution.components}\n"


def find_mirror(root: Path = Path("/")) -> Mirror:
    """The mirror that the system under ``root`` takes its own packages from. Raises NotFoundError where its sources name
    none, or where the keyring is missing that verifies what it serves."""
    base, codename = _base(root)
    entries = read_sources(root)
    missing: list[str] = []
    for key in sorted(DISTRIBUTIONS, key=lambda name: name != base):
        uri = _mirror_uri(entries, key, codename if key == base else "")
        if uri is None:
            continue
        distribution = DISTRIBUTIONS[key]
        keyrings = [root / "usr/share/keyrings" / (distribution.keyring + suffix) for suffix in (".gpg", ".pgp")]
        for keyring in keyrings:
            if keyring.is_file():
                return Mirror(distribution, uri, keyring)
        missing.append(
            f"{uri} is a mirror of {distribution.name}, but {keyrings[0]}, which verifies what it serves, is not here: "
            f"install {distribution.keyring_package}"
        )
    raise NotFoundError("; ".join(missing) or "apt's sources name no mirror of Debian or Ubuntu: set one up")


def read_sources(root: Path = Path("/")) -> list[Entry]:
    """What /etc/apt/sources.list and /etc/apt/sources.list.d name for binary packages, in apt's order."""
    apt = root / "etc/apt"
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    entries: list[Entry] = []
    for file in files:
        if file.is_file() and file.suffix in (".list", ".sources"):
            text = file.read_text(errors="replace")
            entries += _one_line(text) if file.suffix == ".list" else _deb822(text)
    return entries


def _one_line(text: str) -> list[Entry]:
    entries = []
    for line in text.splitlines():
        found = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s*)?([^\s\[]+)\s+(\S+)\s*([^#]*)", line)
        if found:
            options, uri, suite, components = found.groups(default="")
            signed = re.search(r"(?i)\bsigned-by=(\S+)", options)
            entries.append(Entry(uri, (suite,), tuple(components.split()), signed[1] if signed else ""))
    return entries


def _deb822(text: str) -> list[Entry]:
    entries = []
    text = re.sub(r"(?m)^#.*\n?", "", text)  # a comment is no empty line: it does not end a stanza
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1] in (" ", "\t"):  # goes on
                fields[name] = fields.get(name, "") + " " + line.strip()
            else:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if fields.get("enabled", "yes").lower() in ("no", "false", "without", "off", "disable", "0"):
            continue
        if "deb" in fields.get("types", "").split():
            suites, components = (tuple(fields.get(key, "").split()) for key in ("suites", "components"))
            entries += [
                Entry(uri, suites, components, fields.get("signed-by", "").strip())
                for uri in fields.get("uris", "").split()
            ]
    return entries


def _base(root: Path) -> tuple[str, str]:
    """Whether the system is (made from) Debian or Ubuntu, and the codename of that release; empty where it does not say."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        if (root / name).is_file():
            pairs = re.findall(r"""(?m)^(\w+)=["']?([^"'\n]*)""", (root / name).read_text(errors="replace"))
            values = dict(pairs)
            names = [values.get("ID", ""), *values.get("ID_LIKE", "").split()]
            if "ubuntu" in names:
                return "ubuntu", values.get("UBUNTU_CODENAME") or values.get("VERSION_CODENAME", "")
            if "debian" in names:
                return "debian", values.get("DEBIAN_CODENAME") or values.get("VERSION_CODENAME", "")
            break
    return "", ""


def _mirror_uri(entries: list[Entry], distribution: str, codename: str) -> str | None:
    """A source is taken for the distribution's own if it serves the release's codename, or by custom: addresses of mirrors
    end in /debian or /ubuntu. Other archives do so too (a PPA), but have neither updates nor security of the release."""

    def own(entry: Entry) -> bool:
        keyring = entry.signed_by.rpartition("/")[2]
        return "main" in entry.components and (not keyring or keyring.startswith(f"{distribution}-archive"))

    def rank(entry: Entry) -> tuple[int, int]:
        by_codename = bool(codename) and codename in entry.suites
        by_custom = entry.uri.rstrip("/").rpartition("/")[2] == distribution
        served = {suite for other in entries if other.uri == entry.uri for suite in other.suites}
        of_release = sum(codename + suffix in served for suffix in ("", "-updates", "-security", "-backports"))
        return by_codename + by_custom, of_release

    candidates = [entry for entry in entries if own(entry) and rank(entry)[0]]
    return max(candidates, key=rank).uri if candidates else None
