"""Wrappers of models: DDP, DataParallel, FSDP 1 and 2, and what they say about memory."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.facts import Fact, Origin, Status, default, fixed
from memlint.frameworks.names import canonical
from memlint.frameworks.native import plain
from memlint.read.pyeval.values import Function, Instance, Native, Symbol, possible
from memlint.typed import Any

_WRAPPERS = {
    "DistributedDataParallel": "ddp", "DDP": "ddp", "DataParallel": "dp", "FullyShardedDataParallel": "fsdp1", "FSDP": "fsdp1",
    "fully_shard": "fsdp2", "replicate": "ddp",
}  # fmt: skip


def wrapper(name: str) -> str | None:
    """The strategy that a torch wrapper stands for."""
    root, tail = canonical(name)
    return _WRAPPERS.get(tail) if root == "torch" else None


def wrapping_facts(model: Instance) -> dict[str, Fact]:
    """`parallel.*` and `precision` of how a model was wrapped."""
    wrapped = model.slots.get(".wrapped")
    if not isinstance(wrapped, Fact) or not wrapped.known:
        return {}
    call = wrapped.value
    assert isinstance(call, Instance)
    strategy = str(call.slots[".strategy"])
    span = call.call.span
    facts: dict[str, Fact] = {"parallel.strategy": fixed(strategy, span)}
    kwargs = call.call.kwargs
    if not strategy.startswith("fsdp"):
        return facts | (ddp_facts(kwargs) if canonical(call.library)[1] in {"DistributedDataParallel", "DDP"} else {})
    offload = kwargs.get("cpu_offload") or kwargs.get("offload_policy")
    facts |= offload_facts(offload, span)
    policy = kwargs.get("auto_wrap_policy")
    if strategy == "fsdp2":
        if model.slots.get(".wrapped_parts"):
            facts["parallel.wrap_policy"] = fixed("transformer", span)
    else:
        facts["parallel.wrap_policy"] = wrap_policy(policy, span)
    sharding = kwargs.get("sharding_strategy")
    if sharding is not None:
        named = plain(sharding)
        if named.known:
            facts["parallel.fsdp_sharding"] = Fact(str(named.value).rpartition(".")[2].lower(), named.status, named.origin)
    prefetch = kwargs.get("backward_prefetch")
    if prefetch is not None and plain(prefetch).known:
        named = plain(prefetch)
        facts["parallel.backward_prefetch"] = named.with_value(str(named.value).rpartition(".")[2].lower())
    for name in ("limit_all_gathers", "use_orig_params"):
        if name in kwargs:
            facts[f"parallel.{name}"] = plain(kwargs[name])
    mixed = kwargs.get("mixed_precision") or kwargs.get("mp_policy")
    facts |= mixed_precision(mixed, span)
    return facts


def ddp_facts(kwargs: Mapping[str, Fact]) -> dict[str, Fact]:
    """What DistributedDataParallel is told about its buckets (torch 2.13 `nn/parallel/distributed.py`: all off by default)."""
    off, names = default(False, "torch DDP"), ("find_unused_parameters", "gradient_as_bucket_view", "static_graph")
    return {f"parallel.{name}": plain(kwargs.get(name, off)) for name in names}


def parallelism_facts(config: object) -> dict[str, Fact]:
    """The degrees of a `ParallelismConfig` given to an `Accelerator` or to training arguments."""
    for value in possible(config) if isinstance(config, Fact) else ():
        if isinstance(value, Instance) and canonical(value.library)[1] == "ParallelismConfig":
            from memlint.dialects.accelerate import parallelism  # few scripts have one

            return parallelism({name: plain(fact) for name, fact in value.slots.items() if isinstance(fact, Fact)})
    return {}


def offload_facts(offload: Fact | None, span: Any) -> dict[str, Fact]:
    """CPU offload of FSDP parameters (and with them the optimizer)."""
    if offload is None or (offload.known and offload.value in (None, False)):
        return {
            "parallel.offload_params": default("none", "torch FSDP"),
            "parallel.offload_optimizer": default("none", "torch FSDP"),
        }
    for value in possible(offload):
        if isinstance(value, Instance):
            given = value.slots.get("offload_params") or (value.call.args[0] if value.call.args else None)
            if isinstance(given, Fact) and given.known and given.value is False:
                return offload_facts(None, span)
            if given is None and canonical(value.library)[1] == "CPUOffload":
                return offload_facts(None, span)
            if canonical(value.library)[1] == "OffloadPolicy":
                return offload_facts(None, span)
    cpu = Fact("cpu", Status.FIXED, offload.origin or (Origin(span),))
    return {"parallel.offload_params": cpu, "parallel.offload_optimizer": cpu}


def wrap_policy(policy: Fact | None, span: Any) -> Fact:
    """The FSDP wrapping: transformer blocks, by size, or none."""
    if policy is None or (policy.known and policy.value is None):
        return default("none", "torch FSDP: everything in one unit")
    text = repr([_policy_name(v) for v in possible(policy)])
    kind = "size" if "size_based" in text else "transformer"
    return Fact(kind, Status.FIXED, policy.origin or (Origin(span),))


def _policy_name(value: Any) -> str:
    if isinstance(value, (Symbol, Function)):
        return value.name
    inner = value.parts if isinstance(value, Native) else value.call.args if isinstance(value, Instance) else ()
    own = value.library if isinstance(value, Instance) else ""
    return " ".join([own, *(_policy_name(v) for fact in inner for v in possible(fact))])


def mixed_precision(policy: Fact | None, span: Any) -> dict[str, Fact]:
    """`MixedPrecision(param_dtype=...)`: FSDP computes in that dtype."""
    if policy is None:
        return {}
    for value in possible(policy):
        if isinstance(value, Instance):
            dtype = value.slots.get("param_dtype") or (value.call.args[0] if value.call.args else None)
            if isinstance(dtype, Fact):
                named = plain(dtype)
                if named.known:
                    short = {"bfloat16": "bf16-mixed", "float16": "fp16-mixed"}.get(str(named.value).rpartition(".")[2])
                    if short:
                        return {"precision": Fact(short, named.status, named.origin)}
                elif named.choices:
                    table = {"torch.bfloat16": "bf16-mixed", "torch.float16": "fp16-mixed"}
                    modes = tuple(table.get(str(v), "fp32") for v in named.choices)
                    return {"precision": Fact(None, Status.CHOICES, named.origin, modes, named.reason, named.decided_by)}
    return {}
