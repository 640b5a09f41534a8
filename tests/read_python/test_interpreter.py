"""The abstract interpreter on small programs. Expected values are what Python itself computes, or what a person would say."""

# ruff: noqa: E501 - embedded programs keep their lines
from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memlint.facts import Fact, Status, fixed
from memlint.project import Project
from memlint.read.pyeval.commands import CommandLines
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.script import run_script
from memlint.read.pyeval.values import Array
from memlint.source import Kind, ReadError, Source


@dataclass
class Launch:
    argv: tuple[Fact, ...] = ()
    env: Mapping[str, Fact] = field(default_factory=dict)


def walk(code: str, launch: Launch | None = None) -> Machine:
    return run_script(Source("t.py", Kind.PYTHON, code), CommandLines(), None, launch)


def variable(code: str, name: str = "x", launch: Launch | None = None) -> Fact:
    fact = walk(code, launch).modules["t.py"].scope.slots[name]
    assert isinstance(fact, Fact)
    return fact


def plain(fact: Fact) -> Any:
    if isinstance(fact.value, Array):
        return [plain(item) for item in fact.value.items]
    return fact.value


COMPUTED = [
    # expressions: what the running Python says
    "x = 7 // 2 + 2 ** 5 % 3",
    "x = f'Qwen/{\"Qwen2.5\"}-{3}B'",
    "x = 'a-%s-%d' % ('b', 4)",
    "x = '{}/{size}'.format('m', size=7)",
    "x = 'A,b'.lower().split(',')[1]",
    "x = '_'.join(['adamw', 'torch'])",
    "x = [i * 2 for i in range(4) if i != 1]",
    "x = sum(v for v in (1, 2, 3))",
    "x = {k: v + 1 for k, v in {'a': 1}.items()}['a']",
    "x = len('abc') + max(3, 9) - min([4, 2])",
    "x = (lambda a, b=2: a * b)(4)",
    "x = [1, 2, 3][1:][0]",
    "x = not (1 < 2 < 3) or 5",
    "x = 'yes' if 3 in (1, 2) else 'no'",
    "x = 1 << 11",
    "x = round(7 / 2) + abs(-3)",
    "x = int('0x10', 16)",
    "x = 10 if True and not False else 20",
    # statements
    "a, (b, *c) = 1, (2, 3, 4)\nx = c[1] + a",
    "x = 1\nx += 4\nx <<= 2",
    "x = 0\nfor v in [1, 2, 3]:\n    x += v",
    "x = 1\nfor v in ():\n    x = 2\nelse:\n    x = 3",
    "for v in [5, 6, 7]:\n    if v == 6:\n        break\nx = v",
    "x = 1\nwhile False:\n    x = 2",
    "if (x := 24 // 5) > 4:\n    x = 4",
    "try:\n    x = 1\nexcept ValueError:\n    x = 2\nfinally:\n    y = 3",
    "def f(a, *rest, k=3, **kw):\n    return a + len(rest) + k + kw['z']\nx = f(1, 2, 3, z=10)",
    "def outer():\n    n = 4\n    def inner():\n        return n * 2\n    return inner()\nx = outer()",
    "n = 1\ndef bump():\n    global n\n    n = 5\nbump()\nx = n",
    "d = {'a': 1}\nd.update(b=2)\nd['c'] = d.pop('a') + d.get('q', 7)\nx = d['c'] * len(d)",
    "d = dict(a=1, **{'b': 2}) | {'a': 9}\nx = d['a']",
    "l = [1]\nl.append(2)\nl += [3]\nl.extend((4,))\nx = l",
    "class A:\n    n = 3\n    def __init__(self, k):\n        self.k = k\n    @property\n    def double(self):\n        return self.k * 2\nclass B(A):\n"
    "    def __init__(self):\n        super().__init__(5)\nx = B().double + B.n",
    "import copy\na = {'l': [1]}\nb = copy.deepcopy(a)\nb['l'].append(2)\nx = a['l']",
    "from dataclasses import dataclass, field, replace\n@dataclass\nclass C:\n    n: int = 4\n    l: list = field(default_factory=list)\n"
    "c = C(n=2)\nc.l.append(1)\nx = replace(c, n=8).n + len(c.l)",
    "from types import SimpleNamespace\nc = SimpleNamespace(**{'a': 3})\nsetattr(c, 'b', 4)\nx = c.a * getattr(c, 'b')",
    "from functools import partial\nf = partial(lambda a, b: a - b, b=1)\nx = f(5)",
    "from collections import namedtuple\nP = namedtuple('P', 'a b')\nx = P(1, b=2).b",
    "from enum import Enum\nclass D(Enum):\n    BF16 = 'bfloat16'\nx = D.BF16.value",
    "import math\nx = math.ceil(7 / 2) + math.prod([2, 3])",
    "import os\nos.environ['N'] = '3'\nx = int(os.environ['N'])",
    "match ('b', 2):\n    case ('a', _):\n        x = 1\n    case _:\n        x = 2",
    "variant = 'b'\nmatch variant:\n    case 'a':\n        x = 1\n    case 'b' | 'c':\n        x = 2\n    case _:\n        raise ValueError",
    "x = 1\ndef f():\n    x = 2\nf()",
    "x = next(iter([4, 5]))",
    "x = [a for a, b in zip('xy', [1, 2]) if b == 2][0]",
    "xs = [1, 2]\nx = [*xs, 3][-1]",
    "x = isinstance('a', (int, str))",
    "x = list(enumerate(['a']))[0][0]",
    "if __name__ == '__main__':\n    x = 1\nelse:\n    x = 2",
]


@pytest.mark.parametrize("code", COMPUTED)
def test_what_python_computes(code: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(code, namespace)
    fact = variable(code)
    assert fact.status is Status.FIXED, fact.reason
    assert plain(fact) == namespace["x"]


CHOICES = [
    ("import os\nif os.environ['A'] == 'x':\n    x = 1\nelse:\n    x = 8", [1, 8]),
    ("import os\nx = 1 if os.environ['A'] else 2", [1, 2]),
    ("import os\nx = {'s': 3, 'l': 4}[os.environ['A']]", [3, 4]),
    ("import os\ndef f():\n    if os.environ['A']:\n        return 5\n    return 6\nx = f()", [5, 6]),
    ("import os\nd = {'n': 1}\nif os.environ['A']:\n    d['n'] = 2\nx = d['n'] * 10", [20, 10]),
    ("import os\nclass C: pass\nc = C()\nc.n = 1\nif os.environ['A']:\n    c.n = 2\nx = c.n", [2, 1]),
    ("x = 0\nfor x in [2, 4] if unknown() else [6]:\n    pass", None),
]


@pytest.mark.parametrize(("code", "expected"), [row for row in CHOICES if row[1] is not None])
def test_both_branches_are_choices(code: str, expected: list[int]) -> None:
    fact = variable(code)
    assert fact.status is Status.CHOICES
    assert list(fact.choices) == expected


def test_a_branch_that_raises_does_not_count() -> None:
    assert variable("import os\nif os.environ['A']:\n    x = 1\nelse:\n    raise ValueError").value == 1


def test_an_early_return_ends_the_function() -> None:
    code = "def f(a):\n    if a is None:\n        return 'none'\n    b = a * 2\n    return b\nx = (f(None), f(4))"
    assert plain(variable(code)) == ["none", 8]


def test_code_after_exit_is_dead() -> None:
    machine = walk("import sys\nx = 1\nsys.exit(0)\nx = 2")
    assert machine.modules["t.py"].scope.slots["x"].value == 1


UNKNOWN = [
    ("x = 9**9**9", "too large"),
    ("x = 'a' * 10**10", "too long"),
    ("x = [0] * 10**12", "too long"),
    ("x = 1 << 10**9", "too large"),
    ("import os\nx = os.environ['RUN']", "environment variable RUN is not set"),
    ("x = missing", "`missing` is not defined"),
    ("import data\nx = data.size()", "result of `data.size(...)` is not known"),
    ("n = 0\nfor b in loader():\n    n += 1\nx = n", "`n` changes in the loop at line 3"),
    ("def f(n):\n    return f(n + 1)\nx = f(0)", "calls itself too deeply"),
    (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--m', required=True)\nx = p.parse_args().m",
        "--m has no default",
    ),
    ("x = {'a': 1}['b']", "no key 'b'"),
    ("x = 1 / 0", "division by zero"),
    ("x = int('twelve')", "conversion fails"),
]


@pytest.mark.parametrize(("code", "reason"), UNKNOWN)
def test_unknown_has_a_reason(code: str, reason: str) -> None:
    fact = variable(code)
    assert fact.status is Status.UNKNOWN
    assert reason in fact.reason


def test_defaults_are_overridable() -> None:
    assert variable("import os\nx = int(os.getenv('N', '2')) * 3") == variable("import os\nx = int(os.getenv('N', '2')) * 3")
    fact = variable("import os\nx = int(os.getenv('N', '2')) * 3")
    assert (fact.value, fact.status) == (6, Status.DEFAULT)
    launched = variable("import os\nx = int(os.getenv('N', '2')) * 3", launch=Launch(env={"N": fixed("5")}))
    assert (launched.value, launched.status) == (15, Status.FIXED)


def test_what_an_overridable_condition_changes_is_a_default() -> None:
    code = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--big', action='store_true')\na = p.parse_args()\nx = 1\nif a.big:\n    x = 9\ny = 4"
    assert (variable(code).value, variable(code).status) == (1, Status.DEFAULT)
    assert variable(code, "y").status is Status.FIXED
    launched = variable(code, launch=Launch((fixed("--big"),)))
    assert (launched.value, launched.status) == (9, Status.FIXED)


def test_the_origin_is_the_token_that_sets_the_value_then_the_way_it_took() -> None:
    fact = variable("N = 4\ndef f(n):\n    return n\nx = f(N)")
    lines = [(origin.span.line, origin.span.column) for origin in fact.origin if origin.span]
    assert lines[0] == (1, 5)
    assert lines[1:] == [(4, 7), (3, 12)]


def test_columns_count_characters() -> None:
    fact = variable("é = 'ü'; x = 12")
    span = fact.origin[0].span
    assert span is not None
    assert (span.column, span.end_column) == (14, 16)


NEWER = [
    ("type Size = int\nx = 1\n", 1),
    ("def f[T](a: T) -> T:\n    return a\nx = f(3)\n", 3),
    ("class A[T]:\n    n = 2\nx = A.n\n", 2),
    ("v = 'k'\nx = f\"{v!r}: {'x'.join(['a', \"b\"])}\"\n", "'k': axb"),
    ("x = f\"{{'a': 1}['a']}\" if False else f\"{'n'}\"\n", "n"),
]


@pytest.mark.parametrize(("code", "expected"), NEWER[:4])
def test_syntax_of_python_312_is_read_by_older_ones(code: str, expected: Any) -> None:
    assert variable(code).value == expected


BROKEN = [
    ("x = (1,\ny = 2\n", 1, "invalid syntax"),
    ("x = 1\n<<<<<<< HEAD\ny = 1\n=======\ny = 2\n>>>>>>> b\n", 2, "merge conflict"),
    ("print 'hello'\n", 1, "Python 2"),
    ("x = 1\n\tif x:\n", 2, "invalid syntax"),
    ("x = " + "(" * 5000 + ")" * 5000, 1, ""),
]


@pytest.mark.parametrize(("code", "line", "message"), BROKEN)
def test_what_does_not_parse_is_said_with_its_place(code: str, line: int, message: str) -> None:
    with pytest.raises(ReadError) as caught:
        walk(code)
    assert caught.value.line == line
    assert message in caught.value.message


BOMBS = [
    "x = [[i for i in range(10**9)] for j in range(10**9)]",
    "while True:\n    pass",
    "def f():\n    f(); f(); f()\nf()",
    "def f(n):\n    if unknown(n): return f(n - 1)\n    return f(n + 1) + f(n)\nx = f(3)",
    "\n".join(f"if u{i}(): x{i} = {i}" for i in range(2000)),
    "def f(a):\n" + "\n".join(f"    if a == {i}: return {i}" for i in range(300)) + "\nx = f(unknown())",
    "x = [\n" + "1,\n" * 60_000 + "]",
    "exec(open('t.py').read())",
    "x = 'ab'\n" + "x = x + x\n" * 60,
    "d = {}\nfor i in range(10**8):\n    d[i] = d",
]


@pytest.mark.parametrize("code", BOMBS, ids=range(len(BOMBS)))
def test_nothing_takes_long(code: str) -> None:
    started = time.process_time()
    walk(code)
    assert time.process_time() - started < 5


def test_a_statement_nested_too_deeply_hides_no_other() -> None:
    assert variable("y = " + "not " * 900 + "1\nx = 2").value == 2


def test_nothing_of_the_script_runs(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    code = f"open({str(marker)!r}, 'w').write('x')\nimport os\nos.system('touch {marker}')\n__import__('pathlib').Path({str(marker)!r}).touch()"
    walk(code)
    assert not marker.exists()


def project(tmp_path: Path, files: dict[str, str], entry: str = "train.py", launch: Launch | None = None) -> Fact:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    path = str(tmp_path / entry)
    machine = run_script(Source(path, Kind.PYTHON, files[entry]), CommandLines(), Project(tmp_path), launch)
    fact = machine.modules[path].scope.slots["x"]
    assert isinstance(fact, Fact)
    return fact


MODULES = [
    ({"train.py": "import settings\nx = settings.N * 2", "settings.py": "N = 4"}, 8),
    ({"train.py": "from settings import N as M\nx = M", "settings.py": "N = 4"}, 4),
    ({"train.py": "from settings import *\nx = N", "settings.py": "N = 4\n_hidden = 5"}, 4),
    ({"train.py": "from pkg.config import get\nx = get()", "pkg/__init__.py": "", "pkg/config.py": "from .base import N\ndef get():\n    return N + 1",
      "pkg/base.py": "N = 6"}, 7),
    ({"train.py": "from pkg import config\nx = config.N", "pkg/__init__.py": "", "pkg/config.py": "N = 3"}, 3),
    ({"train.py": "import pkg.config as c\nx = c.N", "pkg/__init__.py": "", "pkg/config.py": "from ..other import N", "other.py": "N = 2"}, None),
    ({"train.py": "import a\nx = a.N", "a.py": "import b\nN = 1", "b.py": "import a"}, 1),
    ({"train.py": "import yaml\nx = yaml.safe_load(open('c.yaml'))['t']['bs']", "c.yaml": "t:\n  bs: 12\n"}, 12),
    ({"a/b/train.py": "import yaml\nfrom pathlib import Path\nx = yaml.safe_load((Path(__file__).resolve().parents[2] / 'c.yaml').open())['bs']",
      "c.yaml": "bs: 12\n"}, 12),
    ({"a/b/train.py": "import json, os\nroot = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))\n"
      "x = json.load(open(os.path.join(root, 'c.json')))['bs']", "c.json": '{"bs": 12}'}, 12),
    ({"train.py": "def merged(a, b):\n    found = dict(a)\n    for key, value in b.items():\n"
      "        both = isinstance(value, dict) and isinstance(a.get(key), dict)\n"
      "        found[key] = merged(a[key], value) if both else value\n    return found\n"
      "x = merged({'a': {'b': {'c': {'d': {'e': 1}}}}}, {'a': {'b': {'c': {'d': {'e': 7}}}}})['a']['b']['c']['d']['e']"}, 7),
    ({"train.py": "from ruamel.yaml import YAML\nx = YAML(typ='safe').load(open('c.yaml'))['bs']", "c.yaml": "bs: 12\n"}, 12),
    ({"train.py": "import json\nfrom pathlib import Path\nx = json.loads((Path('d') / 'c.json').read_text())['n']", "d/c.json": '{"n": 5}'}, 5),
    ({"train.py": "import m\nx = m.N", "m.py": "N = 1\nif __name__ == '__main__':\n    N = 2"}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), [row for row in MODULES if row[1] is not None])
def test_modules_and_files_of_the_project_are_read(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    fact = project(tmp_path, files, next(name for name in files if name.endswith("train.py")))
    assert fact.status is Status.FIXED, fact.reason
    assert fact.value == expected


def test_folders_above_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that is named by a relative path finds what lies beside its own folder."""
    (tmp_path / "a").mkdir()
    (tmp_path / "c.yaml").write_text("bs: 12\n", encoding="utf-8")
    text = (
        "import yaml\nfrom pathlib import Path\nx = yaml.safe_load((Path(__file__).resolve().parents[1] / 'c.yaml').open())['bs']"
    )
    (tmp_path / "a" / "train.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "a")
    machine = run_script(Source("train.py", Kind.PYTHON, text), CommandLines(), Project(tmp_path), None)
    assert machine.modules["train.py"].scope.slots["x"].value == 12


def test_a_value_of_a_loaded_file_points_into_it(tmp_path: Path) -> None:
    fact = project(tmp_path, {"train.py": "import yaml\nx = yaml.safe_load(open('c.yaml'))['bs']", "c.yaml": "a: 1\nbs: 12\n"})
    span = fact.origin[0].span
    assert span is not None
    assert (span.path.endswith("c.yaml"), span.line, span.column) == (True, 2, 5)


def test_globals_overridden_by_exec(tmp_path: Path) -> None:
    files = {
        "train.py": "x = 12\ny = 3\nexec(open('configurator.py').read())",
        "configurator.py": "import sys\nfrom ast import literal_eval\nfor arg in sys.argv[1:]:\n    if '=' not in arg:\n        exec(open(arg).read())\n"
        "    else:\n        key, val = arg[2:].split('=')\n        globals()[key] = literal_eval(val)\n",
        "small.py": "x = 5\n",
    }
    assert project(tmp_path, files).status is Status.DEFAULT
    launched = project(tmp_path, files, launch=Launch((fixed("small.py"), fixed("--y=9"))))
    assert (launched.value, launched.status) == (5, Status.FIXED)
