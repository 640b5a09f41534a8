"""verl's SFT trainers (Hydra), and what its PPO trainer (`verl_ppo`) shares with them.

Read at verl b178a3cd56: `verl/trainer/config/**.yaml`, `verl/trainer/{fsdp_sft_trainer,sft_trainer}.py`,
`verl/workers/engine/fsdp/transformer_impl.py`.
"""

from __future__ import annotations

from typing import Any

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, names, number, text
from memlint.facts import Fact, default, fixed, unknown
from memlint.facts.keys import normalise
from memlint.read.document import Document, plain

NAME = "verl"
FRAGMENT = False
INTERPOLATES = True
NOTE = "verl b178a3cd56 default"

STRATEGIES = {"fsdp": "fsdp1", "fsdp2": "fsdp2", "megatron": "megatron"}
_MIXED = {"bfloat16": "bf16-mixed", "float16": "fp16-mixed", "float32": "fp32"}
_OPTIMIZERS = {
    "torch.optim.AdamW": "adamw_torch", "torch.optim.Adam": "adam", "torch.optim.SGD": "sgd",
    "bitsandbytes.optim.AdamW8bit": "adamw_bnb_8bit", "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit",
    "torchao.optim.AdamW8bit": "adamw_torch_8bit", "torchao.optim.AdamW4bit": "adamw_torch_4bit",
}  # fmt: skip
_BATCHES = ("micro_batch_size_per_gpu", "micro_batch_size", "train_batch_size")


def recognise(document: Document) -> str | None:
    """`data` with a batch beside `model` and `trainer`."""
    batch = next((name for name in _BATCHES if document.at(f"data.{name}") is not None), None)
    model = any(document.at(f"model.{name}") is not None for name in ("partial_pretrain", "path"))
    if batch and (model or starts_from(document) == "hf_model") and document.at("trainer") is not None:
        return f"has data.{batch}, model and trainer"
    return None


def starts_from(document: Document) -> str:
    """The first file of the `defaults:` list, without a folder; empty when there is no such list."""
    node = document.at("defaults")
    listed = plain(node) if node is not None else None
    first = listed[0] if isinstance(listed, list) and listed else ""
    return str(next(iter(first.values()), "") if isinstance(first, dict) else first)


def setting(native: Native, otherwise: Any, convert: Any, *names_: str) -> Fact:
    """A given value converted, else verl's own."""
    fact = given(native, *names_)
    return derive(convert, fact) if fact is not None else default(otherwise, NOTE)


def common(native: Native, model: str, engine: str, optimizer: str) -> Facts:
    """What every trainer makes of its model, its FSDP engine and its optimizer."""
    result: Facts = {
        "framework.name": fixed(NAME),
        "parallel.nodes": setting(native, 1, integer, "trainer.nnodes"),
        "quantization.method": default("none", NOTE),
        "optimizer.name": _optimizer(native, optimizer),
        "precision": setting(native, "bf16-mixed", lambda v: _MIXED[normalise("model.dtype", text(v))], f"{engine}.dtype"),
        "model.dtype": setting(native, "float32", lambda v: normalise("model.dtype", text(v)), f"{engine}.model_dtype"),
        "model.attention": setting(native, "flash_attention_2", lambda v: normalise("model.attention", text(v)),
                                    f"{model}.override_config.attn_implementation"),
        "checkpointing.enabled": setting(native, True, boolean, f"{model}.enable_gradient_checkpointing"),
        "checkpointing.use_reentrant": default(False, NOTE),
        "checkpointing.offload": setting(native, False, boolean, f"{model}.enable_activation_offload"),
    }  # fmt: skip
    whole = given(native, f"{model}.use_remove_padding", "use_remove_padding")
    if whole is not None:
        result["batch.padding_free"] = derive(boolean, whole)
    path = given(native, f"{model}.path", f"{model}.partial_pretrain")
    if path is not None:
        result["model.id"] = derive(text, path)
    return result | _adapter(native, model, result["model.dtype"])


def _optimizer(native: Native, block: str) -> Fact:
    """`optimizer_impl` is the module, `optimizer` the class (`verl/workers/config/optimizer.py`)."""
    kind, module = given(native, f"{block}.optimizer"), given(native, f"{block}.optimizer_impl")
    if kind is None and module is None:
        return default("adamw_torch", NOTE)
    parts = (module or default("torch.optim", NOTE), kind or default("AdamW", NOTE))
    return derive(lambda place, name: _OPTIMIZERS.get(f"{place}.{name}") or text(name).lower(), *parts)


def _adapter(native: Native, prefix: str, held: Fact) -> Facts:
    """A rank above 0 is LoRA; the adapted model is converted to the model's dtype as a whole."""
    rank = given(native, f"{prefix}.lora_rank", f"{prefix}.lora.rank")
    result: Facts = {"adapter.method": derive(lambda r: "lora" if integer(r) > 0 else "none", rank or default(0, NOTE))}
    if result["adapter.method"].value == "lora" and rank is not None:
        result |= {
            "adapter.r": derive(integer, rank),
            "adapter.alpha": setting(native, 16, number, f"{prefix}.lora_alpha", f"{prefix}.lora.alpha"),
            "adapter.target_modules": setting(native, "all-linear", names, f"{prefix}.target_modules"),
            "adapter.dtype": default(held.value, f"{NOTE}: the model's dtype") if held.known else held,
        }
    return result


def fsdp(native: Native, engine: str) -> Facts:
    """FSDP2 has its own offload; a shard group smaller than the world leaves replicas (`create_device_mesh`)."""
    resident = setting(native, "none", _host, f"{engine}.offload_policy")
    size = given(native, f"{engine}.fsdp_size")
    reshard = given(native, f"{engine}.reshard_after_forward")
    result: Facts = {"parallel.offload_params": resident, "parallel.offload_optimizer": resident}
    if size is not None and size.known and integer(size.value) > 0:
        spread = setting(native, 1, integer, f"{engine}.ulysses_sequence_parallel_size")
        result["parallel.data_shard"] = derive(lambda ranks, context: max(1, integer(ranks) // context), size, spread)
    if reshard is not None:
        result["parallel.reshard_after_forward"] = derive(boolean, reshard)
    return result


def _host(value: Any) -> str:
    return "cpu" if boolean(value) else "none"


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of `fsdp_sft_trainer.py`, or with an `engine` block of `sft_trainer.py`."""
    own = not any(name.startswith("engine.") for name in native)
    engine = "model.fsdp_config" if own else "engine"
    micro, total = given(native, "data.micro_batch_size_per_gpu", "data.micro_batch_size"), given(native, "data.train_batch_size")
    result = common(native, "model", engine, "optim")
    result |= {
        "parallel.gpus": setting(native, 8 if own else 1, integer, "trainer.n_gpus_per_node"),
        "batch.micro_batch_size": derive(integer, micro) if micro else unknown("data.micro_batch_size_per_gpu is not set"),
        "batch.sequence_length": setting(native, 1024, integer, "data.max_length"),
        "objective": default("causal_lm", "verl SFT trainer"),
        "reference_model": default("none", NOTE),
        "loss.logits": setting(native, "full", lambda on: "fused" if boolean(on) else "full", "model.use_liger"),
    }
    if own:
        flags = [given(native, f"{engine}.{name}") or default(False, NOTE) for name in ("offload_params", "cpu_offload")]
        result |= {
            "parallel.strategy": setting(native, "fsdp2", STRATEGIES.__getitem__, "model.strategy"),
            "parallel.offload_params": derive(lambda a, b: "cpu" if boolean(a) and boolean(b) else "none", *flags),
            "parallel.offload_optimizer": derive(lambda a, b: "cpu" if boolean(a) and boolean(b) else "none", *flags),
            "precision": default("bf16-mixed", f"{NOTE}: FSDP mixed precision"),
            "parallel.context": setting(native, 1, integer, "ulysses_sequence_parallel_size"),
        }
    else:
        result |= fsdp(native, engine) | {
            "parallel.strategy": setting(native, "fsdp1", STRATEGIES.__getitem__, "engine.strategy"),
            "parallel.context": setting(native, 1, integer, "engine.ulysses_sequence_parallel_size"),
        }
        if setting(native, True, boolean, "data.use_dynamic_bsz").value is True:
            return result | by_tokens(native, "data.use_dynamic_bsz", "data.max_token_len_per_gpu", 8192)
    return result | accumulation(result, micro, total)


def by_tokens(native: Native, switch: str, limit: str, otherwise: int) -> Facts:
    """A micro batch is as many samples as fill the tokens of a GPU: one packed row of that length."""
    on = given(native, switch) or default(True, NOTE)
    return {
        "batch.sequence_length": setting(native, otherwise, integer, limit),
        "batch.micro_batch_size": derive(lambda _: 1, on),
        "batch.packing": derive(boolean, on),
    }


def accumulation(result: Facts, micro: Fact | None, total: Fact | None, samples: Fact | None = None) -> Facts:
    """Steps that split the samples of an update over the data-parallel ranks."""
    if micro is None or total is None:
        return {}
    world = [result["parallel.gpus"], result["parallel.nodes"], result["parallel.context"]]
    steps = derive(
        lambda size, whole, gpus, nodes, ring, each: max(integer(whole) * each // (integer(size) * gpus * nodes // ring), 1),
        micro, total, *world, samples or default(1, NOTE),
    )  # fmt: skip
    return {"batch.gradient_accumulation_steps": steps}


_SFT = {
    "batch.micro_batch_size": "data.micro_batch_size_per_gpu", "batch.sequence_length": "data.max_length",
    "checkpointing.enabled": "model.enable_gradient_checkpointing", "adapter.r": "model.lora_rank",
    "adapter.alpha": "model.lora_alpha", "adapter.target_modules": "model.target_modules",
    "parallel.gpus": "trainer.n_gpus_per_node", "parallel.nodes": "trainer.nnodes",
    "parallel.context": "ulysses_sequence_parallel_size",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> key of the SFT trainer's YAML; None where it cannot say it."""
    if key in _SFT:
        return [(_SFT[key], value)]
    if key == "loss.logits" and value in ("fused", "full"):
        return [("model.use_liger", value == "fused")]
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        return [("model.fsdp_config.cpu_offload", value == "cpu"), ("model.fsdp_config.offload_params", value == "cpu")]
    return None if key == "precision" else written(key, value, "model.fsdp_config", "optim")


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """The `engine` block of the newer SFT trainer."""
    own = written(key, value, "engine", "optim")
    return [own] if own else []


def written(key: str, value: Any, engine: str, optimizer: str) -> list[tuple[str, Any]] | None:
    """The keys of an engine's and an optimizer's block, which both trainers have."""
    if key == "model.dtype":
        return [(f"{engine}.model_dtype", {"float32": "fp32", "bfloat16": "bf16"}.get(str(value), value))]
    if key == "precision" and value in ("bf16-mixed", "fp16-mixed"):
        return [(f"{engine}.dtype", "bfloat16" if value == "bf16-mixed" else "float16")]
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        return [(f"{engine}.offload_policy", value == "cpu")]
    if key == "optimizer.name":
        path = next((path for path, name in _OPTIMIZERS.items() if name == value), "")
        module, _, name = path.rpartition(".")
        return [(f"{optimizer}.optimizer", name), (f"{optimizer}.optimizer_impl", module)] if path else None
    return None
