"""FSDP as `transformers.TrainingArguments` takes it: the switch `fsdp`, once a text of options, and the mapping `fsdp_config`.

Read in transformers 4.57.3 and 5.24.0, `training_args.py`, `_process_fsdp_args`. Not every option of accelerate is read there:
`offload_params` is not, it is `cpu_offload`, and before 5.12 the words of `fsdp` alone decide sharding, offload and wrapping.
"""

from __future__ import annotations

from memlint.dialects.derive import Facts, Native, derive, given, integer
from memlint.dialects.fsdp import fsdp_facts, nested, unprefixed
from memlint.facts import Fact, default
from memlint.typed import Any
from memlint.versions import Versions

_BY_WORDS = frozenset({"sharding_strategy", "reshard_after_forward", "cpu_offload", "auto_wrap_policy"})
"""What the words of `fsdp` decide before 5.12."""


def trainer_fsdp(native: Native, versions: Versions) -> Facts:
    """`parallel.*` of `fsdp` and `fsdp_config`. The strategy without FSDP is left to the launch (DDP, or one GPU)."""
    switch = given(native, "fsdp")
    if switch is None:
        return {}
    if not switch.known:
        return {"parallel.strategy": switch} if not switch.values else {}
    words = _words(switch.value)
    if not words:
        return {}
    modern, note = versions.at_least("transformers", "5.12"), f"{versions.note('transformers')} default"
    options = unprefixed(nested(native, "fsdp_config"))
    options.pop("offload_params", None)
    version = given(options, "version") or default(2 if modern else 1, note)
    if not modern:
        options = {name: fact for name, fact in options.items() if name not in _BY_WORDS}
    options = {
        **_worded([word for word in words if not (modern and word == "auto_wrap")], switch, options, version.value == 2),
        **options,
    }
    # 5.24.0: without a launcher's environment `cpu_ram_efficient_loading` is false
    defaults = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP" if modern else "NO_WRAP", "cpu_ram_efficient_loading": False}
    if modern and version.value != 2:
        options.pop("sharding_strategy", None)  # passed to accelerate as `reshard_after_forward`, which FSDP 1 does not look at
    facts = fsdp_facts(options, version=derive(integer, version), note=note, defaults=defaults)
    # Only its version is a default: that FSDP is on is stated, and no launcher takes it back.
    return facts | {"parallel.strategy": derive(lambda _, strategy: strategy, switch, facts["parallel.strategy"])}


def _worded(words: list[str], switch: Fact, options: Native, second: bool) -> dict[str, Fact]:
    """The options that the words stand for: a sharding strategy, `offload`, `auto_wrap`."""
    result: dict[str, Fact] = {}
    for word in words:
        if word == "offload":
            result["cpu_offload"] = switch.with_value(True)
        elif word == "auto_wrap":
            size = given(options, "min_num_params")
            by_size = size is not None and size.known and size.value
            result["auto_wrap_policy"] = switch.with_value("SIZE_BASED_WRAP" if by_size else "TRANSFORMER_BASED_WRAP")
        elif word != "true" and second:
            result["reshard_after_forward"] = switch.with_value(word == "full_shard")
        elif word != "true":
            result["sharding_strategy"] = switch.with_value(word)
    return result


def _words(value: Any) -> list[str]:
    """The options of `fsdp` (`"full_shard auto_wrap"`, a list of them, or True)."""
    if value in (None, False, "", [], "false", "False"):
        return []
    items = [value] if not isinstance(value, (str, list, tuple)) else value.split() if isinstance(value, str) else value
    return [str(getattr(item, "value", item)).lower() for item in items]
