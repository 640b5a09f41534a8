"""The README shows what memlint really prints. `MEMLINT_UPDATE_SNAPSHOTS=1` writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

from conversation import ROOT, Memlint

README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n\$ memlint ([^\n]+)\n(.*?)```", re.DOTALL)


def test_every_console_block_is_real(memlint: Memlint) -> None:
    text = README.read_text(encoding="utf-8")
    real = BLOCK.sub(lambda m: f"```console\n$ memlint {m[1]}\n{memlint(*m[1].split(), cwd=ROOT).out}```", text)
    assert "internal error:" not in real
    if os.environ.get("MEMLINT_UPDATE_SNAPSHOTS"):
        README.write_text(real, encoding="utf-8")
    assert BLOCK.findall(text), "the README shows nothing"
    assert README.read_text(encoding="utf-8") == real


def test_the_readme_is_short_and_its_options_exist(memlint: Memlint) -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    known = "".join(memlint(command, "--help").out for command in ("check", "estimate", "facts", "rule", "diff", "config"))
    options = set(re.findall(r"(?<!-)(--[a-z][a-z-]+)", text))
    assert {option for option in options if option not in known} == set()


def test_the_configuration_shown_is_accepted(memlint: Memlint, tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    toml = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert toml is not None
    (tmp_path / "pyproject.toml").write_text(toml[1], encoding="utf-8")
    done = memlint("config", "show", ".", "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert '"a100-80gb"' in done.out
