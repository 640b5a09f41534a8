"""DeepSpeed JSON: an engine configuration, alone or together with the arguments of the HF Trainer.

Defaults are those of DeepSpeed 0.19.8 (`runtime/zero/config.py`, `runtime/constants.py`, `runtime/zero/offload_config.py`).
Alone, the file is a fragment of a run. `"auto"` leaves a value to the HF integration, which fills it from the training arguments
(transformers 5.24.0, `integrations/deepspeed.py`).
"""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number, text
from memlint.facts import Fact, Problem, Site, default, fixed, unknown
from memlint.read.document import Document, flatten
from memlint.typed import Any
from memlint.versions import Versions

NAME = "deepspeed"
FRAGMENT = True
INTERPOLATES = False

_OWN_KEYS = frozenset(
    {
        "zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_clipping", "fp16", "bf16",
        "zero_allow_untested_optimizer", "steps_per_print", "wall_clock_breakdown", "gradient_accumulation_steps",
        "prescale_gradients", "activation_checkpointing", "optimizer", "scheduler", "zero_force_ds_cpu_optimizer",
        "communication_data_type", "gradient_predivide_factor", "amp", "flops_profiler", "tensor_parallel", "torch_autocast",
    }
)  # fmt: skip
_CERTAIN = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"})

_OPTIMIZERS = {
    "adam": "adamw_torch_fused", "adamw": "adamw_torch_fused", "fusedadam": "adamw_torch_fused",
    "deepspeedcpuadam": "deepspeed_cpu_adam", "onebitadam": "onebit_adam", "zerooneadam": "zero_one_adam",
    "onebitlamb": "onebit_lamb", "lamb": "lamb", "fusedlamb": "lamb", "lion": "lion_32bit", "fusedlion": "lion_32bit",
    "cpulion": "deepspeed_cpu_lion", "adagrad": "adagrad", "sgd": "sgd", "muon": "muon", "adafactor": "adafactor",
}  # fmt: skip

_DTYPES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "bfp16": "bfloat16",
    "bfloat16": "bfloat16",
    "float32": "float32",
}
_BUCKETS = {
    "parallel.reduce_bucket_size": ("reduce_bucket_size", 500_000_000),
    "parallel.allgather_bucket_size": ("allgather_bucket_size", 500_000_000),
    "parallel.prefetch_bucket_size": ("stage3_prefetch_bucket_size", 50_000_000),
    "parallel.param_persistence_threshold": ("stage3_param_persistence_threshold", 100_000),
    "parallel.max_live_parameters": ("stage3_max_live_parameters", 1_000_000_000),
    "parallel.max_reuse_distance": ("stage3_max_reuse_distance", 1_000_000_000),
}
_OPTIONS = (
    ("parallel.sub_group_size", "sub_group_size", integer),
    ("parallel.secondary_shard", "zero_hpz_partition_size", integer),
    ("parallel.quantized_weights", "zero_quantized_weights", boolean),
    ("parallel.quantized_frozen", "zero_quantized_nontrainable_weights", boolean),
    ("parallel.quantized_gradients", "zero_quantized_gradients", boolean),
    ("parallel.data_shard", "mics_shard_size", integer),
    ("parallel.swap_buffers", "offload_optimizer.buffer_count", integer),
    ("parallel.offload_optimizer_share", "offload_optimizer.ratio", number),
)
"""Facts that are there only when their option is given (`mics_shard_size`: MiCS)."""
_ALIASES = {
    "stage3_prefetch_bucket_size": "prefetch_bucket_size",
    "stage3_param_persistence_threshold": "param_persistence_threshold",
    "stage3_max_live_parameters": "max_live_parameters",
    "stage3_max_reuse_distance": "max_reuse_distance",
}
_STAGE3 = {
    "parallel.prefetch_bucket_size", "parallel.param_persistence_threshold", "parallel.max_live_parameters",
    "parallel.max_reuse_distance",
}  # fmt: skip


def recognise(document: Document) -> str | None:
    """A DeepSpeed configuration has only engine keys at the top, at least one of them DeepSpeed's alone."""
    keys = document.keys
    certain = keys & _CERTAIN
    if certain:
        return f"has {', '.join(sorted(certain))}"
    named = sorted(keys & {"train_batch_size", "steps_per_print"})
    if named and len(keys & _OWN_KEYS) >= 3 and len(keys - _OWN_KEYS) <= 3:
        return f"has {named[-1]} and engine keys"
    return None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of an engine configuration (flattened: `zero_optimization.stage`). Values left to `"auto"` are absent."""
    context = context or Context()
    context.note(_problems(native))
    return {"framework.name": fixed("deepspeed"), **engine_facts(native, context.versions)}


def engine_facts(native: Native, versions: Versions | None = None) -> Facts:
    """The same without the framework's name: for an engine configuration that belongs to a run of another framework."""
    versions = versions or Versions()
    note = versions.note("deepspeed") + " default"
    result: Facts = {}
    zero = _stage(native, note)
    result["parallel.strategy"] = derive(lambda stage: f"zero{stage}" if stage else "ddp", zero)
    if zero.value != 0:
        result |= _zero(native, zero, note)
    if zero.value == 3:
        # transformers 5.0.0: the experts of a layer are one module with stacked weights, a list of modules before
        stacked = versions.at_least("transformers", "5.0")
        result["parallel.zero3_leaf_modules"] = default(stacked, f"{versions.note('transformers')} experts")
    total = _explicit(native, "train_batch_size")
    if total is not None:
        result["batch.global_batch_size"] = derive(integer, total)
    micro = _explicit(native, "train_micro_batch_size_per_gpu")
    steps = _explicit(native, "gradient_accumulation_steps")
    if micro is not None:
        result["batch.micro_batch_size"] = derive(integer, micro)
    if steps is not None:
        result["batch.gradient_accumulation_steps"] = derive(integer, steps)
    precision = _precision(native)
    if precision is not None:
        result["precision"] = precision
    optimizer = given(native, "optimizer.type")
    if optimizer is not None:
        # with an offloaded optimizer the engine takes its CPU Adam for `Adam`: parallel.offload_optimizer says so
        result["optimizer.name"] = derive(lambda name: _OPTIMIZERS.get(str(name).lower(), str(name).lower()), optimizer)
    accumulated = _explicit(native, "data_types.grad_accum_dtype")
    if accumulated is not None:  # default: the weights' own (`runtime/engine.py`, `get_data_types`)
        result["optimizer.grad_dtype"] = derive(lambda name: _DTYPES[text(name).lower()], accumulated)
    ranks = _explicit(native, "sequence_parallel_size")
    if ranks is not None:  # Ulysses (`runtime/config.py`)
        result |= {"parallel.context": derive(integer, ranks), "parallel.context_comm": derive(lambda _: "a2a", ranks)}
    if native.get("activation_checkpointing") is not None:
        offloaded = given(native, "activation_checkpointing.cpu_checkpointing")
        if offloaded is not None:
            result["checkpointing.offload"] = derive(boolean, offloaded)
    return result


def plugin_facts(config: Native, training: Facts, versions: Versions) -> tuple[Facts, tuple[Problem, ...]]:
    """What a DeepSpeed configuration adds to the facts of HF training arguments, and where the two disagree.

    `training` are the facts of the arguments, which fill every `"auto"`. HF refuses a configuration whose explicit values
    differ from the arguments (`HfTrainerDeepSpeedConfig.fill_match`).
    """
    engine = engine_facts(config, versions)
    added = {key: fact for key, fact in engine.items() if key.startswith("parallel.")}
    problems: list[Problem] = []
    for key, name in _MATCHED.items():
        in_file, argument = engine.get(key), training.get(key)
        if in_file is None:
            continue
        if argument is None:
            added[key] = in_file
        elif in_file.known and argument.known and _differ(key, in_file.value, argument.value):
            span = in_file.origin[0].span if in_file.origin else None
            other = argument.origin[0].span if argument.origin else None
            if span is not None:
                message = (
                    f"{name} is {in_file.value} in the DeepSpeed configuration and {argument.value} in the training "
                    f'arguments: the Trainer refuses to start; write "auto" there'
                )
                problems.append(Problem("deepspeed-arguments-mismatch", message, span, (other,) if other else ()))
            added[key] = in_file
    for key in ("optimizer.name", "optimizer.grad_dtype", "batch.global_batch_size"):
        if key in engine:
            added[key] = engine[key]
    if "checkpointing.offload" in engine:
        added["checkpointing.offload"] = engine["checkpointing.offload"]
    return added, tuple(problems)


def linked(link: Fact | None, training: Facts, context: Context) -> Facts:
    """What the `deepspeed` argument of a configuration adds: a path to a JSON file, or the configuration itself.

    The strategy is unknown when the file cannot be read. Problems and sites go to the context.
    """
    if link is None:
        return {}
    if link.known and isinstance(link.value, dict):
        added, problems = plugin_facts(_flat(link), training, context.versions)
        context.note(problems)
        return added
    document = context.follow(link)
    if document is None:
        reason = f"the DeepSpeed configuration {link.value} was not found" if link.known else link.reason
        return {"parallel.strategy": unknown(reason, link.origin[0].span if link.origin else None)}
    span = link.origin[0].span if link.origin else None
    config = {name: fact.through(span, "linked by deepspeed") for name, fact in flatten(document).items()}
    added, problems = plugin_facts(config, training, context.versions)
    context.note((*document.problems, *_problems(config), *problems))
    context.sites.append(Site(NAME, "json", document.root.span))
    return added


def _problems(native: Native) -> tuple[Problem, ...]:
    """What the engine refuses (`runtime/config.py`)."""
    states = [given(native, "fp16.enabled"), given(native, "bf16.enabled") or given(native, "bfloat16.enabled")]
    if all(state is not None and state.known and state.value is True for state in states):
        spans = [
            state.origin[0].span for state in states if state is not None and state.origin and state.origin[0].span is not None
        ]
        if spans:
            message = "fp16 and bf16 are both enabled: DeepSpeed refuses that"
            return (Problem("fp16-and-bf16-both", message, spans[0], tuple(spans[1:])),)
    return ()


def _flat(fact: Fact) -> dict[str, Fact]:
    """An inline configuration, flattened; every part has the origin of the whole."""
    result: dict[str, Fact] = {}
    stack: list[tuple[str, Any]] = [("", fact.value)]
    while stack:
        prefix, value = stack.pop()
        for name, item in value.items():
            result[prefix + str(name)] = fact.with_value(item)
            if isinstance(item, dict) and prefix.count(".") < 10:
                stack.append((f"{prefix}{name}.", item))
    return result


_MATCHED = {
    "batch.micro_batch_size": "train_micro_batch_size_per_gpu",
    "batch.gradient_accumulation_steps": "gradient_accumulation_steps",
    "precision": "the precision",
}


def _differ(key: str, engine: Any, argument: Any) -> bool:
    if key == "precision":
        return bool(str(engine)[:4] != str(argument)[:4])
    return bool(engine != argument)


def _explicit(native: Native, name: str) -> Fact | None:
    """A value that is not left to `"auto"`."""
    fact = given(native, name)
    return None if fact is None or (fact.known and fact.value == "auto") else fact


def _stage(native: Native, note: str) -> Fact:
    whole = given(native, "zero_optimization")
    if whole is not None and whole.known and isinstance(whole.value, bool):
        return derive(int, whole)  # the boolean of DeepSpeed 0.1: ZeRO stage 1
    stage = _explicit(native, "zero_optimization.stage")
    return derive(integer, stage) if stage is not None else default(0, note)


def _zero(native: Native, stage: Fact, note: str) -> Facts:
    result: Facts = {
        "parallel.offload_optimizer": _device(native, "optimizer", note),
        "parallel.offload_params": _device(native, "param", note),
    }
    for key, (name, value) in _BUCKETS.items():
        if key in _STAGE3 and stage.value != 3:
            continue
        names = [f"zero_optimization.{spelling}" for spelling in (name, _ALIASES.get(name, name))]
        fact = next((found for found in (given(native, spelling) for spelling in names) if found is not None), None)
        if fact is None:
            result[key] = default(value, note)
        elif not (fact.known and fact.value == "auto"):
            result[key] = derive(number, fact)
        elif name == "reduce_bucket_size":
            # transformers 5.24.0 integrations/deepspeed.py, `trainer_config_finalize`: the square of the hidden size
            result["parallel.bucket_of_width"] = fact.with_value(True)
    for key, name, convert in _OPTIONS:
        option = _explicit(native, f"zero_optimization.{name}")
        if option is not None:
            result[key] = derive(convert, option)
    overlap = _explicit(native, "zero_optimization.overlap_comm")
    # DeepSpeed 0.19.8 runtime/zero/config.py: None becomes True for stage 3 only
    result["parallel.overlap_comm"] = derive(boolean, overlap) if overlap else derive(lambda s: s == 3, stage, note=note)
    gathered = _explicit(native, "zero_optimization.stage3_gather_16bit_weights_on_model_save") or _explicit(
        native, "zero_optimization.stage3_gather_fp16_weights_on_model_save"
    )
    if gathered is not None and stage.value == 3:
        result["parallel.gather_weights_on_save"] = derive(boolean, gathered)
    contiguous = _explicit(native, "zero_optimization.contiguous_gradients")
    result["parallel.contiguous_gradients"] = derive(boolean, contiguous) if contiguous else default(True, note)
    return result


def _device(native: Native, what: str, note: str) -> Fact:
    fact = _explicit(native, f"zero_optimization.offload_{what}.device")
    if fact is not None:
        return derive(lambda value: "none" if text(value).lower() in ("none", "null") else text(value).lower(), fact)
    legacy = given(native, f"zero_optimization.cpu_offload{'_param' if what == 'param' else ''}")
    if legacy is not None:
        return derive(lambda value: "cpu" if boolean(value) else "none", legacy)
    whole = given(native, f"zero_optimization.offload_{what}")
    if whole is not None:  # a block without device: DeepSpeed's default device is none
        return derive(lambda _: "none", whole)
    return default("none", note)


def _precision(native: Native) -> Fact | None:
    """The engine's precision; None when the file leaves it to `"auto"`.

    The engine holds half-precision weights and an fp32 master, without autocast: canonically `-mixed`.
    """
    states = {name: given(native, f"{name}.enabled") for name in ("bf16", "bfloat16", "fp16", "torch_autocast", "amp")}
    for name, mode in (("bf16", "bf16-mixed"), ("bfloat16", "bf16-mixed"), ("fp16", "fp16-mixed")):
        fact = states[name]
        if fact is not None and fact.known and fact.value is True:
            return derive(lambda _, mode=mode: mode, fact)
    if any(fact is not None and fact.known and fact.value == "auto" for fact in states.values()):
        return None
    unresolved = next((fact for fact in states.values() if fact is not None and not fact.known), None)
    if unresolved is not None:
        return derive(lambda _: "fp32", unresolved)
    off = next((fact for fact in states.values() if fact is not None), None)
    return derive(lambda _: "fp32", off) if off is not None else None


_WRITE = {
    "batch.micro_batch_size": "train_micro_batch_size_per_gpu",
    "batch.gradient_accumulation_steps": "gradient_accumulation_steps",
    "parallel.reduce_bucket_size": "zero_optimization.reduce_bucket_size",
    "parallel.allgather_bucket_size": "zero_optimization.allgather_bucket_size",
    "parallel.prefetch_bucket_size": "zero_optimization.stage3_prefetch_bucket_size",
    "parallel.overlap_comm": "zero_optimization.overlap_comm",
    "parallel.gather_weights_on_save": "zero_optimization.stage3_gather_16bit_weights_on_model_save",
}


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where a DeepSpeed file cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "checkpointing.offload":
        return [("activation_checkpointing.cpu_checkpointing", value)]
    if key == "optimizer.name":
        named = {"adamw_torch_fused": "AdamW", "adam": "Adam", "lion_32bit": "Lion", "sgd": "SGD", "lamb": "Lamb"}.get(str(value))
        return [("optimizer.type", named)] if named else None
    if key == "precision" and value in ("bf16-mixed", "fp16-mixed"):
        return [("bf16.enabled", value == "bf16-mixed"), ("fp16.enabled", value == "fp16-mixed")]
    if key == "parallel.strategy" and str(value).startswith("zero"):
        return [("zero_optimization.stage", int(str(value)[-1]))]
    if key in ("parallel.offload_optimizer", "parallel.offload_params") and value in ("none", "cpu", "nvme"):
        what = "optimizer" if key.endswith("optimizer") else "param"
        return [(f"zero_optimization.offload_{what}.device", value)]
    return None
