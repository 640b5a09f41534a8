"""litgpt YAML for `litgpt finetune*` and `litgpt pretrain`. Read at litgpt 26857050fe: `args.py`, `finetune/*.py`, `pretrain.py`.

One device trains without FSDP and without checkpointing; several shard with FSDP, fine-tuning then checkpoints every block.
"""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number, text
from memlint.facts import Fact, Problem, choices, default, fixed, unknown
from memlint.read.document import Document
from memlint.typed import Any

NAME = "litgpt"
FRAGMENT = False
INTERPOLATES = False
NOTE = "litgpt 26857050fe default"

_PRECISIONS = {
    "bf16-true": ("bf16-true", "bfloat16"), "bf16-mixed": ("bf16-mixed", "float32"), "32-true": ("fp32", "float32"),
    "16-true": ("fp16-true", "float16"), "16-mixed": ("fp16-mixed", "float32"), "32": ("fp32", "float32"),
}  # fmt: skip
_OPTIMIZERS = {
    "torch.optim.AdamW": "adamw_torch", "AdamW": "adamw_torch", "torch.optim.SGD": "sgd", "torch.optim.Adam": "adam",
    "SGD": "sgd",
    "Adam": "adam", "bitsandbytes.optim.PagedAdamW": "paged_adamw_32bit", "bitsandbytes.optim.AdamW8bit": "adamw_bnb_8bit",
    "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit", "galore_torch.GaLoreAdamW": "galore_adamw",
    "galore_torch.GaLoreAdamW8bit": "galore_adamw_8bit",
}  # fmt: skip
_SWITCHES = {
    "lora_query": (["q_proj"], True), "lora_key": (["k_proj"], False), "lora_value": (["v_proj"], True),
    "lora_projection": (["o_proj"], False), "lora_mlp": (["mlp"], False), "lora_head": (["lm_head"], False),
}  # fmt: skip


_ADAPTERS = {"finetune_adapter": "llama_adapter", "finetune_adapter_v2": "llama_adapter_v2"}


def recognise(document: Document) -> str | None:
    """litgpt's `train` block beside a checkpoint directory or a model name."""
    train = document.at("train")
    micro = document.at("train.micro_batch_size") is not None or document.at("train.global_batch_size") is not None
    model = next((key for key in ("checkpoint_dir", "model_name") if key in document.keys), None)
    if train is None or not micro or model is None:
        return None
    if not document.keys & {"data", "optimizer", "precision", "eval", "lora_r", "out_dir"}:
        return None
    return f"has {model} and train.micro_batch_size"


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a litgpt configuration. A launch adds its sub-command as `litgpt_command` (`finetune_full`)."""
    context = context or Context()
    command = given(native, "litgpt_command")
    kind = str(command.value).replace("-", "_") if command is not None else ""
    pretrain = kind == "pretrain" if kind else "model_name" in native and "checkpoint_dir" not in native
    # `litgpt finetune` is `litgpt finetune_lora` (`__main__.py`)
    lora = kind in ("finetune", "finetune_lora", "finetune_lora_legacy") or (
        not kind and any(name.startswith("lora_") for name in native)
    )
    adapter = _ADAPTERS.get(kind)

    def setting(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    precision = given(native, "precision") or choices(
        ("bf16-mixed", "16-mixed"), note=f"{NOTE}: what the card supports", decided_by="gpu.bf16"
    )
    both = derive(lambda value: _PRECISIONS[str(value)], precision)
    result: Facts = {
        "framework.name": fixed(NAME),
        "precision": derive(lambda pair: pair[0], both),
        "model.dtype": derive(lambda pair: pair[1], both),
        "batch.micro_batch_size": setting("train.micro_batch_size", 4 if pretrain else 1, integer),
        "batch.sequence_length": _length(native, pretrain),
        "objective": fixed("causal_lm"),
        "reference_model": default("none", NOTE),
        "optimizer.name": _optimizer(native, pretrain),
        "adapter.method": fixed("lora", _span(native, "lora_r")) if lora else default(adapter or "none", NOTE),
        "quantization.method": default("none", NOTE),
        "eval.enabled": default(True, NOTE),
    }
    result |= _model(native) | _devices(native, pretrain, lora, result)
    if lora:
        result |= _lora(native, both)
    result |= _quantization(native, both)
    result["loss.logits"] = default("full", f"{NOTE}: cross entropy over them is chunked")
    result["loss.ce_chunk_tokens"] = default(128, NOTE)
    if _tied(native) is not None:
        result["model.tie_word_embeddings"] = derive(boolean, _tied(native) or unknown(""))
    context.note(_problems(native, result))
    return result


def _tied(native: Native) -> Fact | None:
    return given(native, "train.tie_embeddings")


def _span(native: Native, name: str) -> Any:
    fact = native.get(name)
    return fact.origin[0].span if fact is not None and fact.origin else None


def _model(native: Native) -> Facts:
    """The hub id: checkpoint directories are `checkpoints/<org>/<name>`."""
    fact = given(native, "checkpoint_dir", "model_name")
    result: Facts = {}
    if fact is not None:
        result["model.id"] = derive(lambda path: text(path).rstrip("/").removeprefix("checkpoints/"), fact)
    inline = given(native, "model_config")
    if inline is not None and inline.known and isinstance(inline.value, dict) and "n_layer" in inline.value:
        result["model.config"] = derive(_hf_config, inline)
    return result


_CONFIG = {
    "n_layer": "num_hidden_layers", "n_embd": "hidden_size", "n_head": "num_attention_heads",
    "n_query_groups": "num_key_value_heads",
    "head_size": "head_dim", "intermediate_size": "intermediate_size", "padded_vocab_size": "vocab_size",
    "block_size": "max_position_embeddings", "bias": "attention_bias",
}  # fmt: skip


def _hf_config(config: Any) -> dict[str, Any]:
    """A litgpt `Config` of a Llama-like model (RMSNorm, gated MLP, untied head) as a Hugging Face one; others are refused."""
    if config.get("mlp_class_name", "GptNeoxMLP") != "LLaMAMLP" or config.get("norm_class_name") != "RMSNorm":
        raise ValueError(config)
    named = {name: config[own] for own, name in _CONFIG.items() if config.get(own) is not None}
    return {"model_type": "llama", "tie_word_embeddings": False, **named}


def _length(native: Native, pretrain: bool) -> Fact:
    fact = given(native, "train.max_seq_length")
    if fact is not None:
        return derive(integer, fact)
    reason = "the model's block size" if pretrain else "the longest sample, up to the model's block size"
    return unknown(f"train.max_seq_length is not set: {reason}", _span(native, "train.max_seq_length"))


def _optimizer(native: Native, pretrain: bool) -> Fact:
    fact = given(native, "optimizer.class_path")
    if fact is None:
        fact = given(native, "optimizer") or default("AdamW", NOTE)
    fused = given(native, "optimizer.init_args.fused")

    def name(path: Any) -> str:
        known = _OPTIMIZERS.get(text(path), text(path).rsplit(".", 1)[-1].lower())
        # pretrain.py passes fused=True on CUDA
        return (
            "adamw_torch_fused" if known == "adamw_torch" and (pretrain or (fused is not None and fused.value is True)) else known
        )

    return derive(name, fact)


def _devices(native: Native, pretrain: bool, lora: bool, result: Facts) -> Facts:
    """The world, and what litgpt makes of one or several devices."""
    devices = given(native, "devices") or default("auto" if pretrain else 1, NOTE)
    nodes = given(native, "num_nodes") or default(1, NOTE)
    facts_: Facts = {"parallel.nodes": derive(integer, nodes)}
    if devices.known and devices.value in ("auto", -1, "-1"):
        facts_["parallel.gpus"] = unknown("devices is auto: every visible GPU", devices.origin[0].span)
        facts_["checkpointing.enabled"] = (
            default(False, NOTE)
            if pretrain
            else unknown("devices is auto: checkpointing is on with several", devices.origin[0].span)
        )
        return facts_
    facts_["parallel.gpus"] = derive(integer, devices)
    world = derive(lambda gpus, hosts: integer(gpus) * integer(hosts), devices, nodes)
    several = world.known and world.value > 1
    total = given(native, "train.global_batch_size") or default(512 if pretrain else 16, NOTE)
    facts_["batch.gradient_accumulation_steps"] = derive(
        lambda whole, ranks, micro: max(integer(whole) // integer(ranks) // integer(micro), 1),
        total, world, result["batch.micro_batch_size"],
    )  # fmt: skip
    sharding = "fsdp2" if lora else "fsdp1"
    facts_["checkpointing.enabled"] = default(several and not pretrain, f"{NOTE}: FSDP checkpoints every block")
    if several:
        facts_ |= {
            "parallel.strategy": derive(lambda _: sharding, devices if devices.value != 1 else nodes),
            "parallel.offload_params": default("none", NOTE),
            "parallel.wrap_policy": default("transformer", NOTE),
            "parallel.fsdp_sharding": default("hybrid_shard" if pretrain else "full_shard", NOTE),
        }
        if not pretrain:
            facts_["checkpointing.use_reentrant"] = default(False, NOTE)
    else:
        facts_["parallel.strategy"] = default("none", NOTE)
    return facts_


def _lora(native: Native, both: Fact) -> Facts:
    result: Facts = {}
    for key, name, otherwise, convert in (
        ("adapter.r", "lora_r", 8, integer), ("adapter.alpha", "lora_alpha", 16, number), ("adapter.dropout", "lora_dropout",
        0.05, number),
    ):  # fmt: skip
        fact = given(native, name)
        result[key] = derive(convert, fact) if fact is not None else default(otherwise, NOTE)
    switches = [given(native, name) or default(on, NOTE) for name, (_, on) in _SWITCHES.items()]

    def targets(*states: Any) -> list[str]:
        named = [modules for (modules, _), on in zip(_SWITCHES.values(), states, strict=True) if boolean(on)]
        return [module for modules in named for module in modules]

    result["adapter.target_modules"] = derive(targets, *switches)
    result["adapter.implementation"] = default("litgpt_fused_qkv", NOTE)
    result["adapter.dtype"] = default(both.value[1], NOTE) if both.known else derive(lambda pair: pair[1], both)
    return result


def _quantization(native: Native, both: Fact) -> Facts:
    """`bnb.nf4`, `bnb.nf4-dq`, `bnb.fp4`, `bnb.fp4-dq`, `bnb.int8-training`."""
    kind = given(native, "quantize")
    if kind is None:
        return {}
    eight = derive(lambda value: "bnb_8bit" if "int8" in text(value) else "bnb_4bit", kind)
    result: Facts = {"quantization.method": eight}
    if eight.value == "bnb_4bit":
        result |= {
            "quantization.quant_type": derive(lambda value: value.removeprefix("bnb.").removesuffix("-dq"), kind),
            "quantization.double_quant": derive(lambda value: value.endswith("-dq"), kind),
            "quantization.compute_dtype": default(both.value[1], NOTE) if both.known else derive(lambda pair: pair[1], both),
        }
    return result


def _problems(native: Native, result: Facts) -> tuple[Problem, ...]:
    kind, mode = given(native, "quantize"), result["precision"]
    span = kind.origin[0].span if kind is not None and kind.origin else None
    if span is None:
        return ()
    found: list[Problem] = []
    if mode.known and "mixed" in str(mode.value):
        found.append(Problem("quantize-with-mixed-precision", "quantize does not work with mixed precision: use bf16-true", span))
    gpus = result.get("parallel.gpus")
    if gpus is not None and gpus.known and gpus.value > 1:
        found.append(Problem("quantize-on-several-gpus", "quantize works on one device only", span))
    return tuple(found)


_WRITE = {
    "batch.micro_batch_size": "train.micro_batch_size", "batch.sequence_length": "train.max_seq_length", "adapter.r": "lora_r",
    "adapter.alpha": "lora_alpha", "adapter.dropout": "lora_dropout", "parallel.gpus": "devices", "parallel.nodes": "num_nodes",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where litgpt cannot say it. Accumulation follows from the global batch size: keep that."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key in ("precision", "model.dtype"):
        native = {"bf16-mixed": "bf16-mixed", "bf16-true": "bf16-true", "bfloat16": "bf16-true", "fp32": "32-true",
                  "fp16-true": "16-true"}.get(str(value))  # fmt: skip
        return [("precision", native)] if native else None
    if key == "optimizer.name":
        component = next((path for path, name in _OPTIMIZERS.items() if name == value and "." in path), None)
        return [("optimizer.class_path", component)] if component else None
    if key == "quantization.method" and value in ("bnb_4bit", "bnb_8bit"):
        return [("quantize", "bnb.nf4" if value == "bnb_4bit" else "bnb.int8-training")]
    if key == "adapter.target_modules" and value == "all-linear":
        return [(name, True) for name in _SWITCHES if name != "lora_head"]
    if key == "quantization.double_quant":
        return [("quantize", "bnb.nf4-dq" if value else "bnb.nf4")]
    return None
