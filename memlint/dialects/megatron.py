"""Megatron-LM: the flags of `pretrain_gpt.py` and its like, and Megatron-Core's settings that NeMo and Megatron-Bridge share.

Read at Megatron-LM d98e8a64dd: `megatron/training/arguments.py`, `core/{model_parallel_config,transformer/transformer_config,
optimizer/optimizer_config}.py`. A flag is a setting's name with dashes. The model is described by the flags themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number, text
from memlint.facts import Fact, default, fixed, unknown
from memlint.typed import Any

NAME = "megatron"
NOTE = "Megatron-LM d98e8a64dd default"
VOCABULARIES = {"GPT2BPETokenizer": 50257}
"""Tokenizers whose vocabulary does not depend on a file that only the training machine has."""

_DEGREES = {
    "parallel.tensor": "tensor_model_parallel_size", "parallel.pipeline": "pipeline_model_parallel_size",
    "parallel.context": "context_parallel_size", "parallel.expert": "expert_model_parallel_size",
}  # fmt: skip


def state_dtype(value: Any) -> str:
    """`fp32`, `bf16`, `fp16` or `fp8` as a canonical dtype."""
    return {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8"}[text(value)]


_OPTIONS = (
    ("moe.capacity_factor", ("moe_expert_capacity_factor",), number),
    ("model.mtp_layers", ("mtp_num_layers",), integer),
    ("optimizer.exp_avg_dtype", ("exp_avg_dtype",), state_dtype),
    ("optimizer.exp_avg_sq_dtype", ("exp_avg_sq_dtype",), state_dtype),
    ("parallel.offload_optimizer_share", ("optimizer_offload_fraction",), number),
    ("parallel.pipeline_first_layers", ("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage"), integer),
    ("parallel.pipeline_last_layers", ("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"), integer),
)
"""Facts that are there only when their setting is given: as Megatron-LM's flag and as its configuration class call it."""
_OPTIMIZERS = {"adam": "megatron_distributed_adam", "distributed_fused_adam": "megatron_distributed_adam", "lion": "lion_32bit"}
_ATTENTIONS = {"flash": "flash_attention_2", "fused": "sdpa", "auto": "flash_attention_2", "unfused": "eager", "local": "eager"}
_FUSED_LOSSES = {"native": "megatron_fused_ce", "te": "te_fused_ce"}
_LINEARS = {"mxfp8": "mxfp8", "nvfp4": "nvfp4"}
_OBJECTIVES = {"pretrain_bert": "masked_lm", "pretrain_t5": "seq2seq_lm"}
_MODULES = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of the flags. A launch adds the script's name as `megatron_script` (`pretrain_gpt`)."""
    result: Facts = {"framework.name": fixed(NAME)} | core(native, NOTE)
    result |= precision(native, NOTE) | model(native)
    script = given(native, "megatron_script") or default("pretrain_gpt", NOTE)
    if str(script.value).startswith("pretrain_t5"):
        result.pop("model.config", None)
        result["model.id"] = unknown("an encoder and a decoder: Megatron-LM's T5 is not modelled")
    result["objective"] = derive(lambda name: _OBJECTIVES.get(name, "causal_lm"), script)
    result["adapter.method"] = default("none", NOTE)
    result["quantization.method"] = default("none", NOTE)
    result["batch.packing"] = default(True, "Megatron's GPT data set cuts documents into full samples")
    return result


def _chunks(native: Native) -> Facts:
    """Virtual pipeline stages: so many a rank, or so many layers each (`arguments.py`, `validate_args`)."""
    each, layers = given(native, "num_layers_per_virtual_pipeline_stage"), given(native, "num_layers")
    ranks = given(native, "pipeline_model_parallel_size")
    said = given(native, "virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank")
    if said is not None:
        return {"parallel.pipeline_chunks": derive(integer, said)}
    if each is None or layers is None or ranks is None:
        return {}
    count = derive(lambda total, pipeline, size: integer(total) // integer(pipeline) // integer(size), layers, ranks, each)
    return {"parallel.pipeline_chunks": count}


def core(native: Native, note: str, *, assume: bool = True) -> Facts:
    """What Megatron-Core's own settings mean. Without `assume` only what is given has a fact: a recipe decides the rest."""

    def setting(key: str, name: str, otherwise: Any, convert: Any) -> None:
        fact = given(native, name)
        if fact is not None:
            result[key] = derive(convert, fact)
        elif assume:
            result[key] = default(otherwise, note)

    result: Facts = {"parallel.strategy": _strategy(native, note), "loss.logits": default("full", note),
                     "reference_model": default("none", note)}  # fmt: skip
    result |= _chunks(native)
    for key, name in _DEGREES.items():
        setting(key, name, 1, integer)
    for key, name in (("batch.micro_batch_size", "micro_batch_size"), ("batch.sequence_length", "seq_length"),
                      ("batch.global_batch_size", "global_batch_size"),
                      ("parallel.expert_tensor", "expert_tensor_parallel_size"),
                      ("eval.batch_size", "eval_micro_batch_size")):  # fmt: skip
        fact = given(native, name)
        if fact is not None:
            result[key] = derive(integer, fact)
    for key, names, convert in _OPTIONS:
        fact = given(native, *names)
        if fact is not None and fact.value is not None:
            result[key] = derive(convert, fact)
    setting("parallel.distributed_optimizer", "use_distributed_optimizer", False, boolean)
    setting("optimizer.precision_aware", "use_precision_aware_optimizer", False, boolean)
    setting("optimizer.name", "optimizer", _OPTIMIZERS["adam"], lambda name: _OPTIMIZERS.get(text(name), name))
    setting("model.attention", "attention_backend", "flash_attention_2", lambda name: _ATTENTIONS[str(name).rpartition(".")[2]])
    setting("parallel.offload_optimizer", "optimizer_cpu_offload", "none", lambda on: "cpu" if boolean(on) else "none")
    setting("moe.pad_to_capacity", "moe_pad_expert_input_to_capacity", False, boolean)
    return (
        result | _sequence_parallel(native, note, assume) | _recomputation(native, note, assume) | _loss(native) | _steps(native)
    )


def _strategy(native: Native, note: str) -> Fact:
    torch, own = given(native, "use_torch_fsdp2"), given(native, "use_megatron_fsdp")
    if torch is not None and torch.value is True:
        return torch.with_value("fsdp2")
    if own is not None and own.value is True:
        how = given(native, "data_parallel_sharding_strategy") or default("optim_grads_params", note)
        names = {"optim_grads_params": "fsdp2", "optim_grads": "zero2", "optim": "zero1", "no_shard": "megatron"}
        return derive(lambda _, name: names[name], own, how)
    return fixed("megatron", note="Megatron-Core")


def _sequence_parallel(native: Native, note: str, assume: bool) -> Facts:
    """Without tensor parallelism there is none (`arguments.py`, `validate_args`)."""
    asked, tensor = given(native, "sequence_parallel"), given(native, "tensor_model_parallel_size")
    if asked is None:
        return {"parallel.sequence_parallel": default(False, note)} if assume else {}
    split = tensor or default(1 if assume else 2, note)
    return {"parallel.sequence_parallel": derive(lambda on, ranks: boolean(on) and integer(ranks) > 1, asked, split)}


def _recomputation(native: Native, note: str, assume: bool) -> Facts:
    how = given(native, "recompute_granularity")
    older = given(native, "recompute_activations")
    if how is None and older is not None and derive(boolean, older).value is True:
        how = older.with_value("selective")
    if how is not None and how.value == "none":
        return {"checkpointing.enabled": how.with_value(False), "checkpointing.mode": how}
    if how is None:
        off = {"checkpointing.enabled": default(False, note), "checkpointing.mode": default("none", note)}
        return off if assume or "recompute_granularity" in native else {}
    mode = derive(_mode, how, *(given(native, name) or default(None, note) for name in (
        "recompute_method", "recompute_num_layers", "recompute_modules", "num_layers", "pipeline_model_parallel_size")))  # fmt: skip
    if not mode.known:
        reason = "the recomputed layers or modules are only a part that memlint does not model"
        mode = unknown(reason, how.origin[0].span if how.origin else None)
    return {"checkpointing.enabled": derive(lambda kind: kind in ("full", "selective"), how), "checkpointing.mode": mode,
            "checkpointing.use_reentrant": default(True, "Megatron's own checkpoint function")}  # fmt: skip


def _mode(how: Any, method: Any, count: Any, modules: Any, layers: Any, stages: Any) -> str:
    """`full` recomputes whole layers: all of them, with `block` the first `count` of each stage. `selective`: the core attention."""
    if how == "full":
        if method == "block" and (layers is None or integer(count or 0) * integer(stages or 1) < integer(layers)):
            raise ValueError(count)
        return "full"
    listed = modules.split() if isinstance(modules, str) else list(modules or ("core_attn",))
    if how != "selective" or "core_attn" not in listed:
        raise ValueError(modules)
    return "selective_core_attention"


def _loss(native: Native) -> Facts:
    fused = given(native, "cross_entropy_loss_fusion")
    if fused is None or derive(boolean, fused).value is not True:
        return {}
    kernel = given(native, "cross_entropy_fusion_impl") or default("native", NOTE)
    return {"loss.kernel": derive(lambda _, name: _FUSED_LOSSES[name], fused, kernel)}


def _steps(native: Native) -> Facts:
    """Accumulation follows from the global batch and the data-parallel ranks, which only the launch knows."""
    total, micro = given(native, "global_batch_size"), given(native, "micro_batch_size")
    if total is None or micro is None:
        return {}
    span = total.origin[0].span if total.origin else None
    return {"batch.gradient_accumulation_steps": unknown("global_batch_size divided by the data-parallel ranks", span)}


def precision(native: Native, note: str) -> Facts:
    """`bf16` and `fp16`: weights in that dtype, an fp32 master and, with bf16, fp32 gradients. fp8 is only for the linears."""
    bf16, fp16 = (given(native, name) or default(False, note) for name in ("bf16", "fp16"))
    half = derive(lambda a, b: "bfloat16" if boolean(a) else "float16" if boolean(b) else "float32", bf16, fp16)
    modes = {"bfloat16": "bf16-true", "float16": "fp16-true", "float32": "fp32"}
    result: Facts = {"model.dtype": half, "precision": derive(modes.__getitem__, half),
                     "optimizer.master_weights": derive(lambda name: name != "float32", half)}  # fmt: skip
    low = given(native, "grad_reduce_in_bf16") or default(False, note)
    whole = given(native, "accumulate_allreduce_grads_in_fp32", "grad_reduce_in_fp32") or default(None, note)

    def gradients(name: str, reduced: Any, summed: Any) -> str:
        own = name == "bfloat16" and not boolean(reduced)
        return "float32" if (own if summed is None else boolean(summed)) else name

    found = derive(gradients, half, low, whole)
    result["optimizer.grad_dtype"] = default(found.value, note) if found.known else found
    return result | linears(native)


def linears(native: Native) -> Facts:
    """Linears in fp8 or fp4 through Transformer Engine."""
    eight, four = given(native, "fp8_format", "fp8"), given(native, "fp4_format", "fp4")
    recipe = given(native, "fp8_recipe") or default("delayed", NOTE)
    if four is not None and four.value:
        return {"compute.linear_dtype": four.with_value("nvfp4")}
    if eight is None or eight.value in (False, "none", "None"):
        return {}
    return {"compute.linear_dtype": derive(lambda _, name: _LINEARS.get(name, "float8"), eight, recipe)}


def model(native: Native) -> Facts:
    """The model that the network's sizes describe, in Hugging Face's words."""
    sizes = {name: given(native, name) for name in ("num_layers", "hidden_size", "num_attention_heads")}
    missing = [name for name, fact in sizes.items() if fact is None]
    if missing:
        return {"model.id": unknown(f"{missing[0]} is not given")}
    keys = ("num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size", "num_query_groups", "group_query_attention",
            "kv_channels", "swiglu", "untie_embeddings_and_output_weights", "max_position_embeddings", "num_experts",
            "moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "vocab_size", "padded_vocab_size",
            "tokenizer_type", "multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim",
            "v_head_dim", "num_moe_experts", "gated_linear_unit",
            "share_embeddings_and_output_weights", "activation", "moe_layer_freq")  # fmt: skip
    stated = [(name, fact) for name in keys if (fact := given(native, name)) is not None]
    names = [name for name, _ in stated]
    config = derive(lambda *values: _config(dict(zip(names, values, strict=True))), *(fact for _, fact in stated))
    result: Facts = {"model.config": config}
    if config.known and isinstance(config.value, Mapping):
        result["model.tie_word_embeddings"] = config.with_value(config.value["tie_word_embeddings"])
        result["model.padded_vocab_multiple"] = _multiple(native)
    return result


def _multiple(native: Native) -> Fact:
    """The vocabulary is padded up to a multiple of this and the tensor ranks."""
    unit = given(native, "make_vocab_size_divisible_by") or default(128, NOTE)
    ranks = given(native, "tensor_model_parallel_size") or default(1, NOTE)
    found = derive(lambda size, split: integer(size) * integer(split), unit, ranks)
    return default(found.value, NOTE) if found.known else found


def _config(flags: dict[str, Any]) -> dict[str, Any]:
    """Network sizes as a Hugging Face configuration (`core/models/gpt/gpt_model.py`)."""
    hidden, heads = integer(flags["hidden_size"]), integer(flags["num_attention_heads"])
    gated = boolean(flags.get("swiglu") or flags.get("gated_linear_unit") or "glu" in str(flags.get("activation", "")))
    inner = flags.get("ffn_hidden_size")
    if inner is None:  # arguments.py: two thirds of four times the width, a multiple of 64, with gates
        inner = int((4 * hidden * 2 / 3) / 64) * 64 if gated else 4 * hidden
    grouped = flags.get("num_query_groups") if flags.get("group_query_attention", True) else None
    shared = flags.get("share_embeddings_and_output_weights")
    tied = not boolean(flags.get("untie_embeddings_and_output_weights", False)) if shared is None else boolean(shared)
    config: dict[str, Any] = {
        "model_type": "llama" if gated else "gpt_neox", "hidden_act": "silu" if gated else "gelu",
        "num_hidden_layers": integer(flags["num_layers"]), "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": integer(grouped or heads), "head_dim": integer(flags.get("kv_channels") or hidden // heads),
        "intermediate_size": integer(inner), "tie_word_embeddings": tied,
    }  # fmt: skip
    vocabulary = flags.get("padded_vocab_size") or flags.get("vocab_size") or VOCABULARIES.get(str(flags.get("tokenizer_type")))
    if vocabulary:
        config["vocab_size"] = integer(vocabulary)
    if flags.get("max_position_embeddings"):
        config["max_position_embeddings"] = integer(flags["max_position_embeddings"])
    experts = flags.get("num_experts") or flags.get("num_moe_experts")
    if experts:
        config |= {"model_type": "mixtral", "num_local_experts": integer(experts),
                   "num_experts_per_tok": integer(flags.get("moe_router_topk") or 2),
                   "moe_intermediate_size": integer(flags.get("moe_ffn_hidden_size") or inner)}  # fmt: skip
        if flags.get("moe_shared_expert_intermediate_size"):
            config["moe_shared_expert_intermediate_size"] = integer(flags["moe_shared_expert_intermediate_size"])
        frequency = flags.get("moe_layer_freq", 1)
        if frequency not in (1, "1"):
            config["first_k_dense_replace"] = _dense_layers(frequency)
    if flags.get("multi_latent_attention"):
        names = {"q_lora_rank": "q_lora_rank", "kv_lora_rank": "kv_lora_rank", "qk_head_dim": "qk_nope_head_dim",
                 "qk_pos_emb_head_dim": "qk_rope_head_dim", "v_head_dim": "v_head_dim"}  # fmt: skip
        config |= {own: integer(flags[name]) for name, own in names.items() if flags.get(name)}
        config["model_type"] = "deepseek_v3"
    return config


def _dense_layers(frequency: Any) -> int:
    """How many dense layers a pattern such as `([0]*3+[1]*58)` begins with; another pattern is refused."""
    if isinstance(frequency, str):
        import re

        match = re.fullmatch(r"\(?\s*\[0\]\s*\*\s*(\d+)\s*\+\s*\[1\]\s*\*\s*\d+\s*\)?", frequency.strip())
        if match is None:
            raise ValueError(frequency)
        return int(match.group(1))
    zeros = list(frequency).index(1)
    if any(kind != 1 for kind in frequency[zeros:]):
        raise ValueError(frequency)
    return zeros


def targets(value: Any) -> list[str]:
    """Adapted modules under Megatron's names (NeMo 1 has its own): the fused linears that Megatron's layer is made of."""
    older = {"attention_qkv": ["linear_qkv"], "attention_dense": ["linear_proj"], "mlp_fc1": ["linear_fc1"],
             "mlp_fc2": ["linear_fc2"], "attention": list(_MODULES[:2]), "mlp": list(_MODULES[2:]), "all": list(_MODULES)}  # fmt: skip
    return [module for name in value for module in older.get(str(name), [str(name)])]


_WRITE = {
    **_DEGREES, "batch.micro_batch_size": "micro_batch_size", "batch.sequence_length": "seq_length",
    "parallel.sequence_parallel": "sequence_parallel", "parallel.distributed_optimizer": "use_distributed_optimizer",
    "optimizer.precision_aware": "use_precision_aware_optimizer",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> setting; None where Megatron-Core cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "checkpointing.enabled":
        if not value:
            return [("recompute_granularity", None), ("recompute_method", None), ("recompute_num_layers", None)]
        return [("recompute_granularity", "full"), ("recompute_method", "uniform"), ("recompute_num_layers", 1)]
    if key == "model.attention" and value in ("flash_attention_2", "sdpa"):
        return [("attention_backend", "flash" if value == "flash_attention_2" else "fused")]
    if key == "checkpointing.mode" and value == "selective_core_attention":
        return [("recompute_granularity", "selective")]
    if key == "parallel.offload_optimizer" and value in ("cpu", "none"):
        return [("optimizer_cpu_offload", value == "cpu")]
    if key == "precision" and value in ("bf16-true", "fp16-true"):
        return [("bf16", value == "bf16-true"), ("fp16", value == "fp16-true")]
    if key == "loss.kernel" and value in _FUSED_LOSSES.values():
        name = next(name for name, kernel in _FUSED_LOSSES.items() if kernel == value)
        return [("cross_entropy_loss_fusion", True), ("cross_entropy_fusion_impl", name)]
    return None
