"""What the hook imports, and that no two modules need each other to be imported."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memlint.memory.families import TYPES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "memlint"

BANNED = {
    "libcst", "rich", "torch", "transformers", "trl", "peft", "numpy", "pydantic", "typing_extensions", "pygments",
    "importlib.metadata", "xml.etree", "urllib.request", "http", "ssl", "asyncio", "multiprocessing", "concurrent.futures",
    "subprocess", "logging", "unittest", "sqlite3", "difflib", "dataclasses", "inspect", "shutil", "tokenize",
    "typing", "pathlib", "argparse", "gettext", "locale", "urllib.parse", "ipaddress", "tomllib",
}  # fmt: skip
"""Slow, heavy or not ours: none of it may be loaded by `memlint check` when nothing is to be fixed."""

UNUSED = {
    "memlint.fixes", "memlint.cli.help", "memlint.cli.fix", "memlint.rules.page", "memlint.rules.grammar", "memlint.rules.kinds",
    "memlint.rules.team", "memlint.report.json", "memlint.memory.evaluation",
    "memlint.memory.reference",
}  # fmt: skip
"""Of memlint's own modules: what no plain check needs."""

LOOPS = {"loops", "batches", "contexts", "accelerators", "engines"}
ELSEWHERE = {*LOOPS, "lightning", "sentences", "jobs"}
SURFACES: dict[str, set[str]] = {
    "hf_trainer/fits.py": set(),
    "trl_qlora/fits.py": set(),
    "torch_loop/fits.py": LOOPS,
    "accelerate/fits.py": LOOPS,
}
"""Which of these models of frameworks a script loads: a Trainer's needs none."""

LISTING = """
import sys
from memlint.cli import main
code = main(sys.argv[1:])
loaded = sorted(sys.modules)
import json
print(json.dumps([code, loaded]))
"""


@pytest.mark.parametrize(
    "path",
    [
        "hf_trainer/fits.py",
        "trl_qlora/does_not_fit.py",
        "torch_loop/fits.py",
        "axolotl/fits.yaml",
        "llama_factory/does_not_fit.yaml",
    ],
)
def test_the_hook_path_imports_only_the_standard_library_and_yaml(path: str, tmp_path: Path) -> None:
    code, loaded = _loaded(path, tmp_path)
    assert code == (0 if "does_not" not in path else 1)
    modules = set(loaded)
    assert BANNED & modules == set()
    assert UNUSED & modules == set()
    assert path.endswith(".yaml") or "yaml" not in modules  # a script that links no config needs no YAML reader
    ours = {name.partition(".")[0] for name in modules if "cython" not in name} - set(sys.stdlib_module_names)
    # What a virtual environment's own start-up (.pth files) loads is not ours to judge.
    started = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert ours - set(started.stdout.split()) <= {"memlint", "yaml", "_yaml", "__main__", "tomli"}


@pytest.mark.parametrize("path", SURFACES)
def test_a_script_loads_the_models_of_its_own_framework(path: str, tmp_path: Path) -> None:
    _, loaded = _loaded(path, tmp_path)
    assert {name.rpartition(".")[2] for name in loaded if name.startswith("memlint.frameworks.")} & ELSEWHERE == SURFACES[path]


@pytest.mark.parametrize("path", ["hf_trainer/fits.py", "axolotl/fits.yaml"])
def test_an_estimate_loads_the_page_of_its_own_family(path: str, tmp_path: Path) -> None:
    _, loaded = _loaded(path, tmp_path)
    assert {name.rpartition(".")[2] for name in loaded if name.startswith("memlint.memory.families.")} & set(TYPES) == {"llama"}


def test_a_file_without_a_run_loads_the_readers_only(tmp_path: Path) -> None:
    """Most files that a hook is given train nothing."""
    (tmp_path / "prepare.py").write_text("import torch\n\n\ndef clean(rows):\n    return [row for row in rows if row]\n")
    _, loaded = _listed(tmp_path / "prepare.py")
    judged = {"assess", "gpus", "models", "dialects", "rules.catalogue", "rules.index", "rules.suppress", "rules.baseline"}
    assert {f"memlint.{name}" for name in judged} & set(loaded) == set()


def test_no_circle_of_imports() -> None:
    """Imports at module level only: one inside a function is not run while modules are being loaded."""
    graph = {module: _imports(path, module) for path in PACKAGE.rglob("*.py") if (module := _name(path))}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module not in done:
            for other in sorted(graph[module] & graph.keys()):
                visit(other, (*trail, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())


def _loaded(path: str, folder: Path) -> tuple[int, list[str]]:
    """The exit code of a check of an example, in a project without a configuration, and the modules that are loaded at its end."""
    shutil.copytree((ROOT / "examples" / path).parent, folder / "job")
    return _listed(folder / "job" / Path(path).name)


def _listed(file: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", LISTING, "check", "--format", "concise", str(file)],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        check=True,
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    return code, modules


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, module: str) -> set[str]:
    """The modules of the package that a file imports while it is loaded; `from package import module` means the module."""
    found: set[str] = set()
    pending: list[ast.stmt] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = (ROOT / (inner.replace(".", "/") + ".py")).exists() or (ROOT / inner.replace(".", "/")).is_dir()
                found.add(inner if is_module else node.module)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test):
            pending += [*node.body, *node.orelse]
        elif isinstance(node, ast.Try):
            pending += [*node.body, *node.orelse, *node.finalbody, *(s for h in node.handlers for s in h.body)]
    return found - {module}
