"""The command line: what it says, what it does not import, how it ends."""

from __future__ import annotations

import pytest

from zefuse import cli


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command in this process."""
    code = cli.main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_overview_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, err = said(capsys, "--help")
    assert code == 0 and err == ""
    assert max(map(len, out.splitlines())) <= min(columns, 100)
    for command in cli.COMMANDS:
        assert f"\n  {command.name} " in out
    for group in ("Packages:", "This machine:", "Upkeep:"):
        assert out.count(f"\n{group}\n") == 1


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("name", [command.name for command in cli.COMMANDS])
def test_each_command_has_help_with_an_example(
    name: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, err = said(capsys, name, "--help")
    assert code == 0 and err == ""
    assert f"example:\n  zefuse {name}" in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("  zefuse ")) <= min(columns, 100)
    assert said(capsys, "help", name)[1] == out


def test_without_a_command_the_overview_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys)
    assert code == 2 and out == "" and "Packages:" in err


# --- what was mistyped ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["insepct", "x"], "zefuse: 'insepct': no such command; did you mean 'inspect'?"),
        (["qqqq"], "zefuse: 'qqqq': no such command\n"),
        (["inspect", "--jsn", "x"], "zefuse inspect: '--jsn': no such argument; did you mean '--json'?"),
        (["cache", "stta"], "argument ACTION: 'stta': no such action; did you mean 'stat'?"),
        (["cache", "why", "--cuont=3"], "'--cuont': no such argument; did you mean '--count'?"),
        (["toolchain", "instal"], "'instal': no such value; did you mean 'install'?"),
        (["inspect"], "the following arguments are required: package"),
    ],
)
def test_wrong_usage_gets_a_suggestion(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, *words)
    assert code == 2 and out == ""
    assert message in err and len(err.splitlines()) == 2 and "--help` lists" in err
