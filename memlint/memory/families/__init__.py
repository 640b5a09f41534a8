"""One page per model family: its layer written as the framework writes it, over shape-only tensors.

`page_of(model_type)` finds the page; a page builds a `Model` from an `Architecture` with a `Builder`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from memlint.memory.build import Builder
from memlint.memory.families.model import Model
from memlint.memory.result import CannotEstimate
from memlint.models.architecture import Architecture

Page = Callable[[Builder, Architecture, int], Model]
"""(builder, architecture, number of layers to build) -> model."""

PAGES = {
    "llama": "llama", "mistral": "llama", "qwen2": "llama", "qwen3": "llama", "gemma": "llama", "gemma2": "llama", "gemma3_text": "llama",
    "granite": "llama", "olmo": "llama", "olmo2": "llama", "olmo3": "llama", "phi3": "llama", "cohere": "llama",
    "cohere2": "llama", "smollm3": "llama", "starcoder2": "llama", "stablelm": "llama", "internlm2": "llama", "internlm": "llama",
    "exaone": "llama", "exaone4": "llama", "baichuan": "llama", "qwen": "llama", "yi": "llama", "apertus": "llama", "arcee": "llama",
    "ministral": "llama", "ministral3": "llama", "seed_oss": "llama", "helium": "llama", "nemotron": "llama",
    "glm": "llama", "glm4": "llama", "chatglm": "llama", "hunyuan_v1_dense": "llama", "ernie4_5": "llama", "persimmon": "llama",
    "smollm": "llama", "llada": "llama", "falcon3": "llama", "minicpm": "llama",
    "gemma4_text": "gemma4", "gemma4_unified_text": "gemma4", "gemma4": "vision_language", "gemma4_unified": "vision_language",
    "gpt2": "gpt", "gpt_neo": "gpt", "gptj": "gpt", "gpt_neox": "gpt", "phi": "gpt", "opt": "gpt", "bloom": "gpt", "falcon": "gpt",
    "mpt": "gpt", "gpt_bigcode": "gpt", "codegen": "gpt", "biogpt": "gpt", "xglm": "gpt", "stablelm_alpha": "gpt",
    "stablelm_epoch": "llama",
    "mixtral": "moe", "qwen2_moe": "moe", "qwen3_moe": "moe", "olmoe": "moe", "granitemoe": "moe", "deepseek_v2": "moe",
    "deepseek_v3": "moe", "glm4_moe": "moe", "kimi_k2": "moe", "glm4_moe_lite": "moe", "minimax_m2": "moe", "qwen3_next": "moe", "qwen3_5_moe_text": "moe", "phimoe": "moe", "gpt_oss": "moe",
    "qwen3_5_text": "qwen3_5",
    "flux2_transformer": "dit", "cogvideox_transformer3d": "dit",
    "vit": "vision", "deit": "vision", "dinov2": "vision", "beit": "vision",
    "qwen2_vl": "vision_language", "qwen2_5_vl": "vision_language", "qwen3_vl": "vision_language", "qwen3_vl_moe": "vision_language",
    "qwen3_5": "vision_language", "qwen3_5_moe": "vision_language", "gemma3": "vision_language", "paligemma": "vision_language",
    "llava": "vision_language", "llava_next": "vision_language", "llava_onevision": "vision_language",
    "idefics3": "vision_language", "smolvlm": "vision_language", "internlm3": "llama", "mistral3": "vision_language", "internvl": "vision_language",
    "qwen2_vl_text": "llama", "qwen2_5_vl_text": "llama", "qwen3_vl_text": "llama", "qwen3_vl_moe_text": "moe",
    "t5": "t5", "mt5": "t5", "umt5": "t5", "bart": "encoder_decoder", "mbart": "encoder_decoder", "pegasus": "encoder_decoder",
    "m2m_100": "encoder_decoder", "marian": "encoder_decoder", "whisper": "encoder_decoder",
    "bert": "encoder", "roberta": "encoder", "xlm-roberta": "encoder", "camembert": "encoder", "electra": "encoder",
    "distilbert": "encoder", "albert": "encoder", "mpnet": "encoder", "ernie": "encoder", "deberta-v2": "deberta",
    "deberta": "encoder", "modernbert": "modernbert", "nomic_bert": "encoder", "layoutlm": "encoder",
}  # fmt: skip


def page_of(model_type: str, framework: str) -> Page:
    """The page of a model type; raises `CannotEstimate` naming it when there is none."""
    module = {"litgpt": "litgpt", "megatron": "megatron"}.get(framework) or PAGES.get(model_type)
    if module is None:
        raise CannotEstimate(f"no memory page for model type {model_type!r}")
    page: Page = import_module(f"memlint.memory.families.{module}").build
    return page
