"""One page per model family: its layer written as the framework writes it, over shape-only tensors.

`page_of(model_type)` finds the page; a page builds a `Model` from an `Architecture` with a `Builder`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from memlint.memory.build import Builder
from memlint.memory.families.model import Model
from memlint.memory.result import NoPage
from memlint.models.architecture import Architecture

Page = Callable[[Builder, Architecture, int], Model]
"""(builder, architecture, number of layers to build) -> model."""

TYPES = {
    "llama": (
        "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text granite olmo olmo2 olmo3 phi3 cohere cohere2 smollm3 "
        "starcoder2 stablelm internlm2 internlm exaone exaone4 baichuan qwen yi apertus arcee ministral ministral3 "
        "seed_oss helium nemotron glm glm4 chatglm hunyuan_v1_dense ernie4_5 smollm llada falcon3 minicpm "
        "stablelm_epoch internlm3 orion mimo glm4v_text qwen2_vl_text qwen2_5_vl_text qwen3_vl_text vaultgemma granite_swa "
        "persimmon jais2"
    ),
    "gemma3n": "gemma3n_text gemma3n",
    "gemma4": "gemma4_text gemma4_unified_text",
    "vision_language": (
        "gemma4 gemma4_unified qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe gemma3 paligemma llava "
        "llava_next llava_onevision glm4v glm4v_moe idefics2 idefics3 smolvlm mistral3 internvl llama4"
    ),
    "gpt": "gpt2 gpt_neo gptj gpt_neox phi opt bloom falcon mpt gpt_bigcode codegen biogpt xglm stablelm_alpha",
    "moe": (
        "mixtral qwen2_moe qwen3_moe olmoe granitemoe deepseek_v2 deepseek_v3 glm4_moe kimi_k2 glm4_moe_lite minimax_m2 "
        "qwen3_next qwen3_5_moe_text phimoe gpt_oss qwen3_vl_moe_text deepseek_v32 glm_moe_dsa mistral4 deepseek flex_olmo glm4v_moe_text"
    ),
    "qwen3_5": "qwen3_5_text",
    "dbrx": "dbrx",
    "mllama": "mllama",
    "llama4": "llama4_text",
    "esm": "esm",
    "hybrid": "mamba falcon_mamba mamba2 falcon_h1 jamba nemotron_h granitemoehybrid bamba lfm2",
    "mmdit": "flux_transformer sd3_transformer",
    "dit": "flux2_transformer cogvideox_transformer3d",
    "unet": "unet_2d_condition",
    "image_classification": "audio-spectrogram-transformer videomae vit deit dinov2 beit",
    "swin": "swin",
    "swinv2": "swinv2",
    "convnet": "resnet convnext convnextv2",
    "efficientnet": "efficientnet",
    "segformer": "segformer",
    "dual_encoder": "clip siglip",
    "speech": "wav2vec2 hubert wavlm",
    "t5": "t5 mt5 umt5",
    "encoder_decoder": "bart mbart pegasus m2m_100 marian whisper",
    "layoutlmv3": "layoutlmv3",
    "conformer": "wav2vec2-bert",
    "t5gemma": "t5gemma",
    "speech_language": "voxtral",
    "openai_gpt": "openai-gpt",
    "fuyu": "fuyu",
    "timesformer": "timesformer",
    "olmo_hybrid": "olmo_hybrid",
    "prenorm": "roberta-prelayernorm xlm-roberta-xl",
    "encoder": "bert roberta xlm-roberta camembert electra distilbert albert mpnet ernie layoutlm",
    "nomic_bert": "nomic_bert",
    "deberta": "deberta deberta-v2",
    "modernbert": "modernbert",
}
"""Page -> the model types that it describes."""

PAGES = {kind: page for page, kinds in TYPES.items() for kind in kinds.split()}
"""Model type -> page (a module of this package)."""


def page_of(model_type: str, framework: str) -> Page:
    """The page of a model type; raises `NoPage` naming it when there is none."""
    module = {"litgpt": "litgpt", "megatron": "megatron"}.get(framework) or PAGES.get(model_type)
    if module is None:
        raise NoPage(f"no memory page for model type {model_type!r}")
    page: Page = import_module(f"memlint.memory.families.{module}").build
    return page
