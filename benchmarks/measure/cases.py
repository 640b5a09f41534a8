"""Short runs of kinds that the published measurements lack, and their tiny versions for a machine without a GPU.

No checkpointing, eager attention and SDPA, padding masks, LoRA with dropout, fp16 autocast, 8-bit optimizers, encoders, vision,
encoder-decoders, preference pairs. Most need less than 16 GB; the last ones fill larger cards. Every fact that the estimate
asks for is stated, so nothing is left to a default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memlint.models import catalogue

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One run to measure: canonical facts, without the card and the versions, which the machine adds."""

    name: str
    facts: Facts

    @property
    def needs(self) -> tuple[str, ...]:
        """Packages beyond torch and transformers."""
        peft = ("peft",) if self.facts["adapter.method"] != "none" else ()
        bits = "bnb" in self.facts["quantization.method"] or "8bit" in self.facts["optimizer.name"]
        return (*peft, "bitsandbytes") if bits else peft


COMMON: Facts = {
    "model.dtype": "bfloat16",
    "model.attention": "sdpa",
    "precision": "bf16-true",
    "quantization.method": "none",
    "adapter.method": "none",
    "batch.gradient_accumulation_steps": 1,
    "batch.packing": True,
    "optimizer.name": "adamw_torch",
    "optimizer.foreach": True,
    "optimizer.in_backward": False,
    "checkpointing.enabled": False,
    "objective": "causal_lm",
    "loss.logits": "full",
    "parallel.gpus": 1,
    "parallel.nodes": 1,
    "parallel.strategy": "none",
    "framework.name": "pytorch",
}
"""What holds where a case says nothing else. `batch.packing`: every row is full and no mask is passed."""

EAGER: Facts = {"model.attention": "eager"}
PADDED: Facts = {"batch.packing": False}
FP32: Facts = {"model.dtype": "float32", "precision": "fp32"}
BF16_MIXED: Facts = {"model.dtype": "float32", "precision": "bf16-mixed"}
FP16_MIXED: Facts = {"model.dtype": "float32", "precision": "fp16-mixed"}
CHECKPOINTED: Facts = {"checkpointing.enabled": True, "checkpointing.use_reentrant": False}
REENTRANT: Facts = {"checkpointing.enabled": True, "checkpointing.use_reentrant": True}
FUSED: Facts = {"optimizer.name": "adamw_torch_fused", "optimizer.foreach": False}
SINGLE: Facts = {"optimizer.foreach": False}
ADAM_8BIT: Facts = {"optimizer.name": "adamw_bnb_8bit", "optimizer.foreach": False}
PAGED_8BIT: Facts = {"optimizer.name": "paged_adamw_8bit", "optimizer.foreach": False}
LION_8BIT: Facts = {"optimizer.name": "lion_8bit", "optimizer.foreach": False}
ADAFACTOR: Facts = {"optimizer.name": "adafactor", "optimizer.foreach": False}
SGD: Facts = {"optimizer.name": "sgd"}
LORA: Facts = {
    "adapter.method": "lora",
    "adapter.r": 16,
    "adapter.alpha": 32,
    "adapter.dropout": 0.0,
    "adapter.target_modules": "all-linear",
    "adapter.dtype": "float32",
}
DROPOUT: Facts = {"adapter.dropout": 0.1}
NF4: Facts = {
    "quantization.method": "bnb_4bit",
    "quantization.quant_type": "nf4",
    "quantization.double_quant": True,
    "quantization.compute_dtype": "bfloat16",
    "quantization.skip_modules": ["lm_head"],
}
DPO: Facts = {"objective": "dpo", "reference_model": "copy"}  # with `none`, the reference is the model without its adapter
CLASSES: Facts = {"objective": "sequence_classification", "model.num_labels": 2}
SEQ2SEQ: Facts = {"objective": "seq2seq_lm"}
IMAGES: Facts = {"objective": "image_classification", "model.num_labels": 10, "batch.image_size": 224}

SMOL, QWEN25, QWEN3 = "HuggingFaceTB/SmolLM2-360M", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B"
LLAMA, QWEN15, LLAMA8 = "meta-llama/Llama-3.2-1B", "Qwen/Qwen2.5-1.5B", "meta-llama/Llama-3.1-8B"
GPT2, PYTHIA, OPT, GEMMA = "openai-community/gpt2", "EleutherAI/pythia-410m", "facebook/opt-350m", "google/gemma-3-270m"
BERT, ROBERTA, MODERN = "google-bert/bert-base-uncased", "FacebookAI/roberta-base", "answerdotai/ModernBERT-base"
DEBERTA, DISTIL = "microsoft/deberta-v3-base", "distilbert/distilbert-base-uncased"
VIT, VIT_LARGE, DINO = "google/vit-base-patch16-224", "google/vit-large-patch16-224", "facebook/dinov2-base"
T5, BART = "google-t5/t5-base", "facebook/bart-base"


def _case(name: str, model: str, batch: int, length: int, *more: Facts) -> Case:
    facts = {"model.id": model, **COMMON, "batch.micro_batch_size": batch, "batch.sequence_length": length}
    for part in more:
        facts |= part
    return Case(name, facts)


CASES: tuple[Case, ...] = (
    _case("qwen25-bf16", QWEN25, 4, 1024),
    _case("qwen25-bf16-padded", QWEN25, 4, 1024, PADDED),
    _case("qwen25-bf16-eager", QWEN25, 4, 1024, EAGER),
    _case("qwen25-autocast", QWEN25, 4, 1024, BF16_MIXED),
    _case("qwen25-fp16", QWEN25, 4, 1024, FP16_MIXED),
    _case("qwen3-fp32", QWEN3, 2, 512, FP32),
    _case("qwen3-accumulated", QWEN3, 2, 1024, {"batch.gradient_accumulation_steps": 4}),
    _case("smol-eager-padded", SMOL, 4, 1024, EAGER, PADDED),
    _case("smol-fp16-eager", SMOL, 4, 512, FP16_MIXED, EAGER),
    _case("gpt2-fp32-dropout", GPT2, 4, 1024, FP32),
    _case("gpt2-eager-dropout", GPT2, 4, 1024, BF16_MIXED, EAGER),
    _case("pythia-bf16", PYTHIA, 4, 1024, FUSED),
    _case("opt-fp16", OPT, 4, 512, FP16_MIXED),
    _case("gemma3-autocast", GEMMA, 2, 1024, BF16_MIXED),
    _case("llama-lora-dropout", LLAMA, 4, 1024, LORA, DROPOUT),
    _case("llama-lora", LLAMA, 4, 1024, LORA),
    _case("llama-lora-bf16", LLAMA, 4, 1024, LORA, DROPOUT, {"adapter.dtype": "bfloat16"}),
    _case("llama-lora-attention", LLAMA, 4, 1024, LORA, DROPOUT, {"adapter.target_modules": ["q_proj", "v_proj"]}),
    _case("llama-lora-fp16", LLAMA, 2, 1024, FP16_MIXED, LORA, DROPOUT, PADDED),
    _case("llama-lora-checkpointed", LLAMA, 8, 1024, LORA, DROPOUT, CHECKPOINTED),
    _case("llama-qlora", LLAMA, 4, 1024, LORA, DROPOUT, NF4),
    _case("llama-8bit-adam", LLAMA, 2, 1024, ADAM_8BIT),
    _case("llama-8bit-paged", LLAMA, 2, 1024, PAGED_8BIT),
    _case("qwen25-8bit-lion", QWEN25, 4, 512, LION_8BIT),
    _case("qwen25-adafactor", QWEN25, 4, 512, ADAFACTOR),
    _case("qwen25-sgd", QWEN25, 4, 512, SGD),
    _case("qwen25-single-tensor", QWEN25, 1, 256, SINGLE),
    _case("bert-fp32", BERT, 16, 256, FP32, CLASSES, PADDED),
    _case("bert-fp16-eager", BERT, 16, 384, FP16_MIXED, EAGER, CLASSES, PADDED),
    _case("bert-masked-lm", BERT, 16, 256, BF16_MIXED, PADDED, {"objective": "masked_lm"}),
    _case("roberta-lora", ROBERTA, 32, 256, FP32, LORA, DROPOUT, CLASSES, PADDED, {"adapter.target_modules": ["query", "value"]}),
    _case("modernbert-autocast", MODERN, 16, 512, BF16_MIXED, CLASSES, PADDED),
    _case("deberta-tokens", DEBERTA, 8, 256, FP32, EAGER, PADDED, {"objective": "token_classification", "model.num_labels": 9}),
    _case("distilbert-fp16", DISTIL, 32, 256, FP16_MIXED, CLASSES, PADDED),
    _case("vit-fp32", VIT, 32, 197, FP32, IMAGES),
    _case("vit-fp16-eager", VIT, 32, 197, FP16_MIXED, EAGER, IMAGES),
    _case("dinov2-autocast", DINO, 32, 257, BF16_MIXED, IMAGES),
    _case("vit-large-checkpointed", VIT_LARGE, 32, 197, BF16_MIXED, CHECKPOINTED, IMAGES),
    _case("t5-autocast", T5, 8, 512, BF16_MIXED, SEQ2SEQ, {"batch.completion_length": 128}),
    _case("bart-fp32", BART, 8, 512, FP32, SEQ2SEQ, {"batch.completion_length": 128}),
    _case("qwen25-dpo", QWEN25, 2, 512, DPO, PADDED),
    _case("qwen25-dpo-lora", QWEN25, 2, 512, DPO, LORA, PADDED, {"reference_model": "none"}),
    _case("qwen15-reentrant", QWEN15, 4, 1024, FUSED, REENTRANT),
    _case("llama8-qlora", LLAMA8, 2, 1024, LORA, DROPOUT, NF4, CHECKPOINTED),
    _case("llama8-lora", LLAMA8, 1, 1024, LORA, DROPOUT),
)
"""In the order in which they are run, so that a short time limit leaves the largest out."""

TINY_LENGTH = 16
_SIZES = {
    ("hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim"): 64,
    ("intermediate_size", "d_ff", "ffn_dim", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"): 128,
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"): 4,
    ("num_key_value_heads",): 2,
    ("head_dim", "d_kv"): 16,
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"): 2,
    ("vocab_size",): 512,
    ("image_size",): 32,
    ("patch_size",): 16,
}
_TINY = {key: size for keys, size in _SIZES.items() for key in keys}
"""Each size of a configuration by the names that model types give it."""
_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "decoder_start_token_id")
_NAMES_OF_LAYERS = ("out_features", "out_indices", "stage_names")


def configuration(facts: Facts) -> dict[str, Any]:
    """The configuration of a case's model: its own, else the catalogue's. Raises `LookupError` for an unknown id."""
    if "model.config" in facts:
        return dict(facts["model.config"])
    found = catalogue.find(facts["model.id"])
    if found is None:
        raise LookupError(f"the catalogue has no {facts['model.id']}")
    return catalogue.configuration(found.row)


def tiny(case: Case) -> Case:
    """The same run with a model of two narrow layers and a few tokens, for a CPU."""
    config = {key: _tiny_value(key, value) for key, value in configuration(case.facts).items() if key not in _NAMES_OF_LAYERS}
    config |= dict.fromkeys(_TOKENS, 1)
    facts = {**case.facts, "model.config": config, "batch.micro_batch_size": 2, "batch.sequence_length": TINY_LENGTH}
    if "batch.image_size" in facts:
        facts |= {"batch.image_size": 32, "batch.sequence_length": 5}  # four patches and the class token
    if "batch.completion_length" in facts:
        facts["batch.completion_length"] = TINY_LENGTH // 2
    return Case(f"{case.name}-tiny", facts)


def _tiny_value(key: str, value: Any) -> Any:
    if key == "layer_types":
        return value[:2]
    return _TINY[key] if key in _TINY and isinstance(value, int) else value


def chosen(words: list[str]) -> Iterator[Case]:
    """The cases whose names contain one of the words; all of them when there is none."""
    return (case for case in CASES if not words or any(word in case.name for word in words))
