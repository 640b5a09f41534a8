"""How a configuration key follows from others when it is absent (`tools/build_class_defaults.py` chooses the rules)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memlint.typed import Any

Config = Mapping[str, Any]


def _every(config: Config, layers: str, interval: str, usual: Any, nth: Any) -> list[Any]:
    """Each layer is `usual`, every `interval`-th one `nth` (`full_attention_interval`)."""
    return [usual if (i + 1) % config[interval] else nth for i in range(config[layers])]


def _first(config: Config, layers: str, count: str, first: Any, rest: Any) -> list[Any]:
    """The first `count` layers are `first`, the others `rest` (`first_k_dense_replace`)."""
    return [first if i < config[count] else rest for i in range(config[layers])]


def _cycle(config: Config, layers: str, period: list[Any]) -> list[Any]:
    """The layers repeat a fixed period."""
    return [period[i % len(period)] for i in range(config[layers])]


RULES: dict[str, Callable[..., Any]] = {
    "copy": lambda config, name: config[name],
    "times": lambda config, name, n: config[name] * n,
    "quotient": lambda config, a, b: config[a] // config[b],
    "ceil": lambda config, name, n: -(-config[name] // n),
    "sum": lambda config, a, b: config[a] + config[b],
    "product": lambda config, a, b: config[a] * config[b],
    "product_quotient": lambda config, a, b, c: config[a] * config[b] // config[c],
    "fill": lambda config, layers, kind: [kind] * config[layers],
    "every": _every,
    "first": _first,
    "cycle": _cycle,
}


def derive(config: Config, rule: list[Any]) -> Any:
    """The value that a rule gives; None when a key it needs is absent or not a usable number."""
    try:
        return RULES[rule[0]](config, *rule[1:])
    except (KeyError, TypeError, ZeroDivisionError):
        return None
