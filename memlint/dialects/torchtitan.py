"""torchtitan: the TOML files of its releases before 2026 and its flags (`--training.seq_len`), which lie over a configuration.

Read at torchtitan 9810191bb^ (`config/job_config.py`, the last with TOML; 2024 files had `[training] batch_size` and
`[experimental]`) and b5bcd76c6 (`config/configs.py`, configurations as Python functions, whose flags are named alike).
"""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, rename, text
from memlint.facts import Fact, default, fixed, unknown
from memlint.read.document import Document
from memlint.typed import Any

NAME = "torchtitan"
FRAGMENT = False
INTERPOLATES = False
NOTE = "torchtitan default (before 9810191bb)"

_IDS = {
    ("llama2", "7B"): "meta-llama/Llama-2-7b-hf", ("llama2", "13B"): "meta-llama/Llama-2-13b-hf",
    ("llama2", "70B"): "meta-llama/Llama-2-70b-hf", ("llama3", "8B"): "meta-llama/Llama-3.1-8B",
    ("llama3", "70B"): "meta-llama/Llama-3.1-70B", ("llama3", "405B"): "meta-llama/Llama-3.1-405B",
    ("deepseek_v3", "16B"): "deepseek-ai/DeepSeek-V2-Lite", ("deepseek_v3", "236B"): "deepseek-ai/DeepSeek-V2",
    ("deepseek_v3", "671B"): "deepseek-ai/DeepSeek-V3",
    ("llama4", "17bx16e"): "meta-llama/Llama-4-Scout-17B-16E", ("llama4", "17bx128e"): "meta-llama/Llama-4-Maverick-17B-128E",
}  # fmt: skip
"""`model.name` and `model.flavor` -> the checkpoint of that shape (`models/*/__init__.py`). `qwen3` flavors are checkpoint names."""

_DEGREES = {
    "parallel.tensor": "tensor_parallel_degree", "parallel.pipeline": "pipeline_parallel_degree",
    "parallel.context": "context_parallel_degree", "parallel.expert": "expert_parallel_degree",
}  # fmt: skip
_SECTIONS = ("parallelism", "training", "experimental")
"""Where a degree may stand: `parallelism` since 2025, the others before."""
_CONVERTERS = {"float8": "float8", "quantize.linear.float8": "float8", "mx": "mxfp8", "quantize.linear.mx": "mxfp8"}


def recognise(document: Document) -> str | None:
    """`[model] name` and `flavor` beside `[training]`."""
    model, trains = document.at("model.flavor"), document.at("training.seq_len")
    own = document.keys & {"job", "parallelism", "activation_checkpoint", "experimental", "checkpoint", "metrics", "optimizer"}
    if model is None or trains is None or document.at("model.name") is None or len(own) < 2:
        return None
    return f"has model.flavor, training.seq_len and {sorted(own)[0]}"


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a configuration. A launch adds the flags, and of newer releases `module` and `config`."""

    def setting(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    held = setting("training.dtype", "float32", text)
    computed = setting("training.mixed_precision_param", "bfloat16", text)
    result: Facts = {
        "framework.name": fixed(NAME),
        "model.id": _model(native),
        "model.dtype": held,
        "precision": derive(_precision, held, computed),
        "batch.sequence_length": setting("training.seq_len", 2048, integer),
        "batch.packing": default(True, "torchtitan's data sets fill every row"),
        "optimizer.name": _optimizer(native),
        "optimizer.in_backward": setting("optimizer.early_step_in_backward", False, boolean),
        "model.attention": default("sdpa", NOTE),
        "loss.logits": default("full", NOTE),
        "adapter.method": default("none", NOTE),
        "quantization.method": default("none", NOTE),
        "objective": default("causal_lm", NOTE),
        "reference_model": default("none", NOTE),
        "eval.enabled": setting("validation.enable", False, boolean),
        "compile": _compile(native),
    }
    result |= _batch(native, setting) | _checkpointing(native) | _parallel(native, held, computed, setting)
    converters, older = given(native, "model.converters"), given(native, "float8.enable_float8_linear")
    if converters is not None and converters.value:
        result |= {"compute.linear_dtype": dtype} if (dtype := derive(_converted, converters)).known else {}
    elif older is not None and older.value is True:
        result["compute.linear_dtype"] = older.with_value("float8")
    return result


def _model(native: Native) -> Fact:
    name, flavor = given(native, "model.name"), given(native, "model.flavor")
    if name is None or flavor is None:
        named = given(native, "config", "module")
        return derive(text, named) if named is not None else unknown("model.flavor is not given")

    def known(size: Any, family: Any) -> str:
        if family == "qwen3":
            return f"Qwen/Qwen3-{size}"
        return _IDS[str(family), str(size)]

    return derive(known, flavor, name)


def _precision(held: str, computed: str) -> str:
    if held == "bfloat16":
        return "bf16-true"
    return "bf16-mixed" if computed == "bfloat16" else "fp32"


def _batch(native: Native, setting: Any) -> Facts:
    """Releases of 2026 count the tokens of a micro-batch, not its rows."""
    tokens = given(native, "training.num_tokens_per_microbatch_per_dp_rank")
    if tokens is not None:
        length = setting("training.max_context_length", 2048, integer)
        rows = derive(lambda count, context: max(integer(count) // context, 1), tokens, length)
        return {"batch.micro_batch_size": rows, "batch.sequence_length": length}
    name = "training.local_batch_size" if "training.local_batch_size" in native else "training.batch_size"
    result: Facts = {"batch.micro_batch_size": setting(name, 8, integer)}
    total = given(native, "training.global_batch_size")
    if total is None or total.value == -1:
        result["batch.gradient_accumulation_steps"] = default(1, NOTE)
    else:
        span = total.origin[0].span if total.origin else None
        result["batch.global_batch_size"] = derive(integer, total)
        result["batch.gradient_accumulation_steps"] = unknown("global_batch_size divided by the data-parallel ranks", span)
    return result


def _optimizer(native: Native) -> Fact:
    """`fused` is the default implementation; before 2025 it was a switch, off by default."""
    name = given(native, "optimizer.name") or default("AdamW", NOTE)
    fused, how = given(native, "optimizer.fused"), given(native, "optimizer.implementation")
    old = "training.batch_size" in native
    how = how or (derive(lambda on: "fused" if boolean(on) else "foreach", fused) if fused is not None else None)
    how = how or default("foreach" if old else "fused", NOTE)

    def known(optimizer: Any, implementation: Any) -> str:
        plain = {"AdamW": "adamw_torch", "Adam": "adam"}[optimizer]
        return f"{plain}_fused" if implementation == "fused" and plain == "adamw_torch" else plain

    return derive(known, name, how)


def _compile(native: Native) -> Fact:
    fact = given(native, "compile.enable", "training.compile")
    return derive(boolean, fact) if fact is not None else default(False, NOTE)


def _checkpointing(native: Native) -> Facts:
    """`selective` with `op` keeps every second matmul, with a number it recomputes every n-th layer (`2` unless stated)."""
    mode = given(native, "activation_checkpoint.mode") or default("selective", NOTE)
    option = given(native, "activation_checkpoint.selective_ac_option") or default("2", NOTE)

    def kind(name: Any, how: Any) -> str:
        if name == "selective":
            return "selective_op" if how == "op" else "selective_layer"
        return {"full": "full", "none": "none"}[name]

    found = derive(kind, mode, option)
    result: Facts = {
        "checkpointing.enabled": derive(lambda name: name != "none", mode),
        "checkpointing.mode": found,
        "checkpointing.use_reentrant": default(False, NOTE),
    }
    if found.value == "selective_layer":
        result["checkpointing.layer_frequency"] = derive(integer, option)
    return result


def _parallel(native: Native, held: Fact, computed: Fact, setting: Any) -> Facts:
    """FSDP2 over the ranks that no other degree takes (`data_parallel_shard_degree = -1`)."""

    def degree(name: str) -> Fact | None:
        return given(native, *(f"{section}.{name}" for section in _SECTIONS))

    result: Facts = {}
    for key, name in _DEGREES.items():
        fact = degree(name)
        result[key] = derive(integer, fact) if fact is not None else default(1, NOTE)
    staged = result["parallel.pipeline"].value not in (None, 1)
    shard, replicate = degree("data_parallel_shard_degree"), degree("data_parallel_replicate_degree")
    sharded = shard is None or shard.value != 1
    copies = replicate is not None and replicate.known and integer(replicate.value) > 1
    if shard is not None and shard.value != -1:
        result["parallel.data_shard"] = derive(integer, shard)
    # no launcher's default: torchtitan itself shards over the ranks that it is given
    origin = shard if shard is not None else fixed(-1, note=NOTE)
    result["parallel.strategy"] = derive(lambda _: "fsdp2" if sharded else "ddp" if copies else "none", origin)
    if sharded:
        result |= {
            "parallel.fsdp_sharding": default("hybrid_shard" if copies else "full_shard", NOTE),
            "parallel.wrap_policy": default("transformer", NOTE),
            "parallel.mp_param_dtype": computed,
            "parallel.mp_reduce_dtype": setting("training.mixed_precision_reduce", "float32", text),
            "parallel.last_layer_resharded": default(False, NOTE),
        }
        again = degree("fsdp_reshard_after_forward")
        result["parallel.reshard_after_forward"] = (
            derive(lambda how: how == "always" or (how == "default" and not staged), again)
            if again is not None
            else default(not staged, NOTE)
        )
    offload = setting("training.enable_cpu_offload", "none", lambda on: "cpu" if boolean(on) else "none")
    result |= {"parallel.offload_params": offload, "parallel.offload_optimizer": offload}
    if staged and "training.num_tokens_per_microbatch_per_dp_rank" not in native:
        result["parallel.pipeline_micro_batches"] = _micro_batches(native, degree, result["parallel.pipeline"], setting)
    sequence = degree("enable_sequence_parallel") or default(True, NOTE)
    result["parallel.sequence_parallel"] = derive(
        lambda on, ranks: boolean(on) and ranks > 1, sequence, result["parallel.tensor"]
    )
    result |= rename(native, {"parallel.expert_tensor": ("parallelism.expert_tensor_parallel_degree", integer)})
    for key, name, convert in (("parallel.async_tensor", "enable_async_tensor_parallel", boolean),
                               ("parallel.context_comm", "context_parallel_rotate_method", text),
                               ("parallel.pipeline_schedule", "pipeline_parallel_schedule", text)):  # fmt: skip
        fact = degree(name)
        if fact is not None:
            result[key] = derive(convert, fact)
    return result


def _micro_batches(native: Native, degree: Any, ranks: Fact, setting: Any) -> Fact:
    """Pieces of one sample by default; until 2025 a number of pieces, by default one a rank (`pipelining_utils.py`)."""
    said = degree("pipeline_parallel_microbatches")
    if said is not None or "training.batch_size" in native:
        return derive(integer, said or ranks)
    cut = degree("pipeline_parallel_microbatch_size") or default(1, NOTE)
    rows = _batch(native, setting)["batch.micro_batch_size"]
    return derive(lambda batch, size: -(-integer(batch) // integer(size)), rows, cut)


def _converted(names: Any) -> str:
    return next(_CONVERTERS[name] for name in ([names] if isinstance(names, str) else names) if name in _CONVERTERS)


_WRITE = {
    "batch.micro_batch_size": "training.local_batch_size", "batch.sequence_length": "training.seq_len",
    "model.dtype": "training.dtype", "compile": "compile.enable", "optimizer.in_backward": "optimizer.early_step_in_backward",
    "eval.enabled": "validation.enable",
    **{key: f"parallelism.{name}" for key, name in _DEGREES.items()},
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where torchtitan cannot say it."""
    if key == "model.dtype" and value not in ("float32", "bfloat16"):
        return None
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "checkpointing.enabled":
        return [("activation_checkpoint.mode", "full" if value else "none")]
    if key == "checkpointing.mode":
        named = {"full": "full", "none": "none", "selective_op": "selective", "selective_layer": "selective"}.get(str(value))
        option = [("activation_checkpoint.selective_ac_option", "op")] if value == "selective_op" else []
        return [("activation_checkpoint.mode", named), *option] if named else None
    if key == "precision" and value in ("bf16-mixed", "bf16-true", "fp32"):
        if value == "bf16-true":
            return [("training.dtype", "bfloat16")]
        return [("training.dtype", "float32"), ("training.mixed_precision_param", "bfloat16" if value[0] == "b" else "float32")]
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        return [("training.enable_cpu_offload", value == "cpu")]
    return None
