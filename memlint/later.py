"""Modules that are loaded when one of their names is used first.

    lightning, engines = later("memlint.frameworks", "lightning", "engines")

For a table of surfaces of which a file has one or two: a script of one framework does not load the models of the others. Where a
single function wants a module, an import in that function says so more plainly.
"""

from __future__ import annotations

from importlib import import_module

from memlint.typed import Any


class _Later:
    """Stands for a module. Once loaded, its names are found here without another step."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        module = import_module(self._name)
        self.__dict__.update(vars(module))
        return getattr(module, name)


def later(package: str, *names: str) -> list[Any]:
    """Stand-ins for modules of a package, in the order given."""
    return [_Later(f"{package}.{name}") for name in names]
