"""FSDP options, as accelerate, the HF Trainer and Axolotl spell them, to canonical facts.

All three fill accelerate's `FullyShardedDataParallelPlugin` (accelerate 1.15.0, `utils/dataclasses.py`); they differ in prefixes
and defaults. Call with the options stripped of the `fsdp_` prefix.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, text
from memlint.facts import Fact, default
from memlint.read.document import flatten
from memlint.typed import Any

_SHARDING = {
    "1": "full_shard", "full_shard": "full_shard", "2": "shard_grad_op", "shard_grad_op": "shard_grad_op",
    "3": "no_shard", "no_shard": "no_shard", "4": "hybrid_shard", "hybrid_shard": "hybrid_shard",
    "5": "hybrid_shard_zero2", "hybrid_shard_zero2": "hybrid_shard_zero2", "true": "full_shard", "false": "shard_grad_op",
}  # fmt: skip
_WRAP = {"transformer_based_wrap": "transformer", "size_based_wrap": "size", "no_wrap": "none"}
_STATE_DICTS = {"1": "full_state_dict", "2": "local_state_dict", "3": "sharded_state_dict"}
_FSDP1_ONLY = {
    "parallel.backward_prefetch": ("backward_prefetch", lambda value: text(value).lower()),
    "parallel.use_orig_params": ("use_orig_params", boolean),
    "parallel.limit_all_gathers": ("limit_all_gathers", boolean),
}


def unprefixed(options: Native) -> dict[str, Fact]:
    """The options without their `fsdp_` prefix; a spelling without prefix wins where both occur."""
    plain = {name.removeprefix("fsdp_"): fact for name, fact in options.items() if name.startswith("fsdp_")}
    return {**plain, **{name: fact for name, fact in options.items() if not name.startswith("fsdp_")}}


def with_linked(native: Native, context: Context) -> Native:
    """The arguments with `fsdp_config` read from its file, where it is a path (transformers `training_args.py`: `json.load`)."""
    link = given(native, "fsdp_config")
    document = context.follow(link) if link is not None and isinstance(link.value, str) else None
    if document is None or link is None:
        return native
    span = link.origin[0].span if link.origin else None
    inner = {f"fsdp_config.{name}": fact.through(span, "linked by fsdp_config") for name, fact in flatten(document).items()}
    return {**native, **inner}


def nested(native: Native, prefix: str) -> dict[str, Fact]:
    """The entries of a nested mapping of native facts (`fsdp_config.x` -> `x`)."""
    start = prefix + "."
    return {name[len(start) :]: fact for name, fact in native.items() if name.startswith(start)}


def fsdp_facts(options: Native, *, version: Fact, note: str, defaults: Mapping[str, Any] | None = None) -> Facts:
    """`parallel.*` (and `checkpointing.*` where FSDP does it) from FSDP options.

    `version` is the FSDP version (1 or 2) that holds; `defaults` are the caller's own defaults by option name (an option
    without one takes accelerate's), `note` names whose they are.
    """
    own: dict[str, Any] = {
        "offload_params": False,
        "auto_wrap_policy": "NO_WRAP",
        "reshard_after_forward": True,
        **(defaults or {}),
    }

    def option(*names: str) -> Fact:
        return given(options, *names) or default(own[names[0]], note)

    offload = option("offload_params", "cpu_offload")
    # accelerate 1.15.0, `FullyShardedDataParallelPlugin`: FSDP 1 has a sharding strategy, FULL_SHARD unless it is given, whatever
    # `reshard_after_forward` says; FSDP 2 has only the latter
    first = default("FULL_SHARD", note)
    shards = option("reshard_after_forward") if version.value == 2 else given(options, "sharding_strategy") or first
    how = derive(lambda value: _SHARDING[str(value).lower()], shards)
    facts: Facts = {
        "parallel.strategy": derive(lambda value: f"fsdp{2 if integer(value) == 2 else 1}", version),
        "parallel.offload_params": derive(lambda value: "cpu" if _switched(value) else "none", offload),
        "parallel.offload_optimizer": derive(lambda value: "cpu" if _switched(value) else "none", offload),
        "parallel.wrap_policy": derive(lambda value: _WRAP[text(value).lower()], option("auto_wrap_policy")),
        "parallel.fsdp_sharding": how,
        "parallel.reshard_after_forward": derive(lambda value: value in ("full_shard", "hybrid_shard"), how),
    }
    for key, (name, convert) in _FSDP1_ONLY.items():
        fact = given(options, name)
        if fact is not None and facts["parallel.strategy"].value == "fsdp1":
            facts[key] = derive(convert, fact)
    saved = given(options, "state_dict_type")
    if saved is not None:
        facts["parallel.state_dict_type"] = derive(lambda value: _STATE_DICTS.get(str(value), text(value).lower()), saved)
    loading = given(options, "cpu_ram_efficient_loading")
    if loading is not None or "cpu_ram_efficient_loading" in own:
        facts["parallel.cpu_ram_efficient_loading"] = derive(boolean, option("cpu_ram_efficient_loading"))
    checkpointing = given(options, "activation_checkpointing")
    if checkpointing is not None and derive(boolean, checkpointing).value is not False:
        facts["checkpointing.enabled"] = derive(boolean, checkpointing)
        facts["checkpointing.use_reentrant"] = derive(lambda _: False, checkpointing)
        offloaded = given(options, "activation_checkpointing_offload")
        if offloaded is not None:
            facts["checkpointing.offload"] = derive(boolean, offloaded)
    return facts


def _switched(value: Any) -> bool:
    """A switch that may also be an options object (`CPUOffload(offload_params=True)` given as a mapping)."""
    if isinstance(value, Mapping):
        return bool(value.get("offload_params", True))
    return boolean(value)
