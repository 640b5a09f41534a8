"""A launch command as the rest of memlint sees it: the words, the environment and what the launcher itself decides."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.facts import Fact, Problem
from memlint.source import Span
from memlint.typed import NamedTuple


class Command(NamedTuple):
    """One training launch: `CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py --bs 4`.

    `argv` are the words after the program (`--bs`, `4`), each a Fact over text: fixed, default (`${BS:-4}`) or
    unknown (`$1`). A word never stands for several; words that come from `"$@"` are left out and `passthrough` is True.
    """

    program: str
    """The script, module or tool that trains, as written: `train.py`, `-m pkg.train` gives `pkg.train`, `swift sft`."""
    argv: tuple[Fact, ...]
    span: Span
    env: Mapping[str, Fact] = {}
    """Environment variables in force: prefixes, `export`, and what the launcher sets, such as WORLD_SIZE."""
    launcher: Mapping[str, Fact] = {}
    """Canonical facts that the launcher decides: `parallel.gpus`, `parallel.strategy`, `precision`, ..."""
    module: bool = False
    """The program is a module name (`python -m`)."""
    passthrough: bool = False
    """Further words may follow when the launch file itself is called with arguments."""
    directory: str | None = None
    """The working directory when the launch changed it (`cd examples`)."""
    path: str = ""
    """The file that holds the launch; links in `argv` are resolved from it."""
    accelerate_config: str | None = None
    """Path of the accelerate YAML that the launcher reads, resolved."""
    problems: tuple[Problem, ...] = ()
    """What the launcher itself refuses."""
