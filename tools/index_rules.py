"""Write `memlint/rules/index.py`: what memlint's own rule pages say, so that a check need neither read YAML nor parse conditions.

    python tools/index_rules.py

`tests/rules/test_front_matter.py` fails when a page was changed since.
"""

from __future__ import annotations

from pathlib import Path

from memlint.rules import grammar, index
from memlint.rules.catalogue import pages_folder
from memlint.rules.page import read_rule

HEAD = '''"""What memlint's own rule pages say, as Python, which loads ten times as fast. Written by `tools/index_rules.py`."""

# ruff: noqa: E501
# fmt: off

from __future__ import annotations

from collections.abc import Mapping

from memlint.typed import Any

'''


def text() -> str:
    """The module for the pages as they are: a line for each page, and one for each expression in them."""
    rules = {path.name: read_rule(str(path)) for path in sorted(Path(pages_folder()).glob("MEM*.md"))}
    read = [expression for rule in rules.values() for expression in (*filter(None, (rule.when,)), *rule.computed())]
    texts = dict.fromkeys(expression.text for expression in read)
    rows = "".join(f"    {name!r}: {rule.row()!r},\n" for name, rule in rules.items())
    trees = "".join(f"    {text!r}: {grammar.read(text)!r},\n" for text in texts)
    return (
        f'{HEAD}ROWS: Mapping[str, tuple[Any, ...]] = {{\n{rows}}}\n"""By name of the page, see `Rule.row`."""\n\n'
        f'EXPRESSIONS: Mapping[str, tuple[Any, ...]] = {{\n{trees}}}\n"""By text: the tree, the names and the problems in it."""\n'
    )


if __name__ == "__main__":
    Path(index.__file__).write_text(text(), encoding="utf-8")
