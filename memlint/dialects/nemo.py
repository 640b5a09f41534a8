"""NeMo YAML around Megatron-Core: NeMo 2 recipes as `nemo llm ... --yaml` takes and saves them, and NeMo 1's Hydra files.

Read at NeMo 8cfedd7203: `nemo/lightning/pytorch/strategies/megatron_strategy.py`, `nemo/collections/llm/{recipes,peft}`,
`examples/nlp/language_modeling/{,tuning/}conf`. NeMo 2 names classes by `_target_`; NeMo 1 has all of Megatron's settings under `model`.
"""

from __future__ import annotations

import re

from memlint.dialects import megatron
from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, derive, given, integer, number, rename, text
from memlint.dialects.fsdp import nested
from memlint.facts import Fact, default, fixed, unknown
from memlint.read.document import Document
from memlint.typed import Any

NAME = "nemo"
FRAGMENT = False
INTERPOLATES = True
NOTE = "NeMo 8cfedd7203 default"

_OLD_NAMES = {
    "recompute_granularity": "activations_checkpoint_granularity", "recompute_method": "activations_checkpoint_method",
    "recompute_num_layers": "activations_checkpoint_num_layers", "seq_length": "encoder_seq_length",
}  # fmt: skip
"""Megatron-Core's names -> NeMo 1's."""

_OTHER_NETWORKS = re.compile(r"mamba|griffin|retro|hyena|t5|ul2|bart|bert|t0")
"""Names of NeMo 1 configurations whose sizes describe another network than `core.megatron`'s GPT."""

_SCHEMES = {"lora": "lora", "adapter": "adapter", "ia3": "ia3", "ptuning": "p_tuning", "null": "none", "none": "none"}

_IDS = (
    (r"Llama2Config(\d+B)", "meta-llama/Llama-2-{}-hf"), (r"Llama3Config(\d+B)", "meta-llama/Meta-Llama-3-{}"),
    (r"Llama31Config(\d+B)", "meta-llama/Llama-3.1-{}"), (r"Llama32Config(\d+B)", "meta-llama/Llama-3.2-{}"),
    (r"MistralConfig(7B)", "mistralai/Mistral-{}-v0.1"), (r"MixtralConfig(8x\d+B)", "mistralai/Mixtral-{}-v0.1"),
    (r"Gemma2Config(\d+B)", "google/gemma-2-{}"), (r"GemmaConfig(\d+B)", "google/gemma-{}"),
    (r"Qwen2Config(\d+B)", "Qwen/Qwen2-{}"), (r"Qwen25Config(\d+B)", "Qwen/Qwen2.5-{}"),
    (r"Qwen3Config(\d+B)", "Qwen/Qwen3-{}"),
)  # fmt: skip
"""Configuration classes of `nemo.collections.llm` -> the checkpoint of their shape."""


def recognise(document: Document) -> str | None:
    """Megatron's strategy in a Lightning trainer, or NeMo 1's `model` with Megatron's degrees beside a `trainer`."""
    for path in ("trainer.strategy._target_", "strategy._target_"):
        target = document.text_at(path) or ""
        if target.endswith("MegatronStrategy"):
            return f"{path} is {target}"
    sizes = document.at("model.micro_batch_size") is not None and document.at("model.tensor_model_parallel_size") is not None
    trains = document.at("trainer.max_steps") is not None or document.at("trainer.max_epochs") is not None
    if sizes and trains and (document.at("model.optim") is not None or document.at("model.data.train_ds") is not None):
        return "has model.micro_batch_size, model.tensor_model_parallel_size and trainer"
    return None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a NeMo configuration."""
    first = "model.micro_batch_size" in native
    flat = _settings_1(native) if first else _settings_2(native)
    result = {"framework.name": fixed(NAME)} | megatron.core(flat, NOTE)
    result |= _precision(native, flat) | megatron.linears(flat)
    result |= _model_1(native, flat) if first else _model_2(native, flat)
    result |= _adapter_1(native) if first else _adapter_2(native)
    result |= rename(native, {"parallel.nodes": ("trainer.num_nodes", integer)})
    devices = given(native, "trainer.devices")
    if devices is not None:
        auto = devices.value in (-1, "-1", "auto")
        span = devices.origin[0].span if devices.origin else None
        result["parallel.gpus"] = unknown("trainer.devices: every visible GPU", span) if auto else derive(_count, devices)
    result["objective"] = default("causal_lm", NOTE)
    return result | _fsdp(native)


def _fsdp(native: Native) -> Facts:
    """NeMo 1 with torch's FSDP instead of Megatron's optimizer."""
    on = given(native, "model.fsdp")
    if on is None or on.value is not True:
        return {}
    names = {"full": "full_shard", "grad": "shard_grad_op", "hybrid": "hybrid_shard"}
    sharding = given(native, "model.fsdp_sharding_strategy") or default("full", NOTE)
    return {"parallel.strategy": on.with_value("fsdp1"), "parallel.fsdp_sharding": derive(names.__getitem__, sharding)}


def _count(devices: Any) -> int:
    return len(devices) if isinstance(devices, list) else integer(devices)


def _settings_1(native: Native) -> Native:
    model = nested(native, "model")
    named = {own: model[old] for own, old in _OLD_NAMES.items() if old in model}
    length = given(native, "model.data.train_ds.max_seq_length", "model.data.seq_length")
    own = {"seq_length": length} if length is not None else {}
    fused = {"use_distributed_optimizer": fused} if (fused := _distributed(native)) is not None else {}
    # a network of NeMo 1 always states its groups itself
    return {**model, **named, **own, **fused}


def _distributed(native: Native) -> Fact | None:
    """`distributed_fused_adam` shards its states over the data-parallel ranks."""
    name = given(native, "model.optim.name")
    return (
        derive(lambda value: value in ("distributed_fused_adam", "mcore_distributed_optim"), name) if name is not None else None
    )


def _settings_2(native: Native) -> Native:
    strategy = nested(native, "trainer.strategy") or nested(native, "strategy")
    data = {name: fact for name in ("micro_batch_size", "global_batch_size", "seq_length")
            if (fact := given(native, f"data.{name}", f"data.common.{name}")) is not None}  # fmt: skip
    # `distributed_fused_adam_with_cosine_annealing` asks for the distributed optimizer; so do the recipes' DDP settings
    sharded = {"use_distributed_optimizer": default(True, NOTE)}
    ddp = nested(native, "trainer.strategy.ddp")
    return {**nested(native, "model.config"), **sharded, **strategy, **ddp, **nested(native, "optim.config"), **data}


def _precision(native: Native, flat: Native) -> Facts:
    plugin = given(native, "trainer.plugins.precision", "plugins.precision", "trainer.precision")
    if plugin is None:
        stated = {name: fact for name, fact in flat.items() if name in ("bf16", "fp16") and fact.value is True}
        return megatron.precision(stated, NOTE) if stated else {}
    o2 = given(native, "model.megatron_amp_O2")
    half = derive(lambda value: {"16": "fp16", "b": "bf16"}.get(str(value)[:2].replace("bf", "b"), "fp32"), plugin)
    if "model.micro_batch_size" in native and (o2 is None or o2.value is not True):
        # NeMo 1 without O2: fp32 weights under autocast
        modes = {"bf16": "bf16-mixed", "fp16": "fp16-mixed", "fp32": "fp32"}
        return {"precision": derive(modes.__getitem__, half), "model.dtype": default("float32", NOTE),
                "optimizer.master_weights": default(False, NOTE)}  # fmt: skip
    return megatron.precision({str(half.value): plugin.with_value(True)}, NOTE) if half.known and half.value != "fp32" else {
        "precision": half, "model.dtype": default("float32", NOTE)}  # fmt: skip


def _model_1(native: Native, flat: Native) -> Facts:
    name = given(native, "name")
    if name is not None and _OTHER_NETWORKS.search(str(name.value)):
        return {"model.id": unknown(f"the network of {name.value} is no plain GPT", name.origin[0].span if name.origin else None)}
    if given(native, "model.num_layers") is not None:
        return megatron.model(flat)
    source = given(native, "model.restore_from_path")
    path = source if source is not None and source.value != "???" else None
    return {"model.id": derive(text, path) if path is not None else unknown("model.restore_from_path is given at launch")}


def _model_2(native: Native, flat: Native) -> Facts:
    language = given(native, "model.llm.pretrained_model")
    if language is not None:
        span = language.origin[0].span if language.origin else None
        return {"model.id": unknown(f"{language.value} inside a model of several parts", span)}
    kind = given(native, "model.config._target_")
    if kind is not None and kind.known:
        name = text(kind.value).rpartition(".")[2]
        for pattern, model in _IDS:
            match = re.fullmatch(pattern, name)
            if match:
                return {"model.id": kind.with_value(model.format(match.group(1)))}
    return megatron.model(flat)


def _adapter_1(native: Native) -> Facts:
    scheme = given(native, "model.peft.peft_scheme")
    if scheme is None:
        return {"adapter.method": default("none", NOTE)}
    result: Facts = {"adapter.method": derive(lambda name: _SCHEMES[str(name)], scheme)}
    if result["adapter.method"].value == "lora":
        result |= rename(native, {
            "adapter.r": ("model.peft.lora_tuning.adapter_dim", integer), "adapter.alpha": ("model.peft.lora_tuning.alpha", number),
            "adapter.dropout": ("model.peft.lora_tuning.adapter_dropout", number),
            "adapter.target_modules": ("model.peft.lora_tuning.target_modules", megatron.targets),
        })  # fmt: skip
    return result


def _adapter_2(native: Native) -> Facts:
    block = "peft" if given(native, "peft._target_") is not None else "model.peft"
    kind = given(native, f"{block}._target_")
    if kind is None:
        return {"adapter.method": default("none", NOTE)}
    result: Facts = {"adapter.method": derive(lambda name: text(name).rpartition(".")[2].lower(), kind)}
    for key, name, otherwise, convert in (
        ("adapter.r", "dim", 32, integer), ("adapter.alpha", "alpha", 32, number), ("adapter.dropout", "dropout", 0.0, number),
        ("adapter.target_modules", "target_modules", list(megatron.targets(["all"])), megatron.targets),
    ):  # fmt: skip
        fact = given(native, f"{block}.{name}")
        result[key] = derive(convert, fact) if fact is not None else default(otherwise, NOTE)
    return result


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> NeMo 1's key (`model.*`); None where it cannot say it. NeMo 2 states classes: only values in place change."""
    if key in ("precision", "model.attention") or key.startswith(
        ("loss.", "optimizer.", "parallel.offload", "parallel.distributed")
    ):
        return None
    if key == "adapter.r":
        return [("model.peft.lora_tuning.adapter_dim", value)]
    pairs = megatron.write(key, value)
    return [(f"model.{_OLD_NAMES.get(name, name)}", native) for name, native in pairs] if pairs else None
