"""Tiny configs, one per model type, with sizes that keep the terms of a formula apart."""

from __future__ import annotations

from .bases import BERT, DELTA, LATENT, LLAMA, MOE, T5, mostly_linear
from .decoder_families import DECODERS
from .encoder_families import ENCODERS
from .family import VOCAB, Family
from .image_families import IMAGES
from .media_families import MEDIA
from .multimodal_families import MULTIMODAL
from .relatives import RELATIVES
from .scan_families import SCANS
from .sound_and_video import SOUND_AND_VIDEO
from .text_families import TEXT
from .vision_language_families import VISION_LANGUAGE

_WIDE = dict(LLAMA, head_dim=24)


_GPT = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2}
_LAYERS = ("n_layer",)


def _sliding(layers: int) -> dict[str, list[str]]:
    return {"layer_types": ["sliding_attention"] * (layers - 1) + ["full_attention"]}


def _kinds(layers: int) -> dict[str, list[str]]:
    return {"layer_types": ["full_attention"] * layers}


def _mostly_full(layers: int) -> dict[str, list[str]]:
    return {"layer_types": ["linear_attention"] + ["full_attention"] * (layers - 1)}


_BART = {
    "d_model": 64,
    "encoder_ffn_dim": 176,
    "decoder_ffn_dim": 176,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}


FAMILIES: tuple[Family, ...] = (
    Family("llama", config=_WIDE),
    Family("qwen2", config=LLAMA),
    Family("gpt2", config=dict(_GPT, n_embd=64, n_head=4, n_inner=176, n_positions=512), depth=_LAYERS),
    Family("bert", "sequence_classification", BERT),
    Family("mistral", config=dict(_WIDE, sliding_window=None)),
    Family("qwen3", config=_WIDE),
    Family("gemma", config=_WIDE),
    Family("gemma2", config=dict(_WIDE, sliding_window=4096, query_pre_attn_scalar=24), without=frozenset({"sdpa"})),
    Family("phi", config=dict(LLAMA, partial_rotary_factor=0.5)),
    Family("phi3", config=LLAMA),
    Family("gpt_neox", config=dict(BERT, bos_token_id=1, eos_token_id=2, rotary_pct=0.5)),
    Family(
        "opt",
        config=dict(
            _GPT, hidden_size=64, ffn_dim=176, num_attention_heads=4, max_position_embeddings=512, word_embed_proj_dim=64
        ),
    ),
    Family("falcon", config=dict(_GPT, hidden_size=64, num_attention_heads=4, multi_query=True, ffn_hidden_size=176)),
    Family("mpt", config=dict(_GPT, d_model=64, n_heads=4, max_seq_len=512), depth=("n_layers",), without=frozenset({"sdpa"})),
    Family("gptj", config=dict(_GPT, n_embd=64, n_head=4, n_inner=176, n_positions=512, rotary_dim=8), depth=_LAYERS),
    Family(
        "gpt_neo",
        config=dict(
            _GPT,
            hidden_size=64,
            num_heads=4,
            intermediate_size=176,
            max_position_embeddings=512,
            attention_types=[[["global"], 2]],
        ),
        depth=("num_layers",),
        layer_list=lambda layers: {"attention_types": [[["global"], layers]]},
        without=frozenset({"sdpa"}),
    ),
    Family("bloom", config=dict(_GPT, hidden_size=64, n_head=4), depth=_LAYERS, without=frozenset({"sdpa"})),
    Family(
        "distilbert",
        "sequence_classification",
        {"dim": 64, "hidden_dim": 176, "n_heads": 4, "vocab_size": VOCAB, "max_position_embeddings": 512, "pad_token_id": 0},
        depth=("n_layers",),
        without=frozenset({"all-linear"}),  # peft cannot both adapt and save a copy of pre_classifier
    ),
    Family("roberta", "sequence_classification", BERT),
    Family("electra", "sequence_classification", dict(BERT, embedding_size=64)),
    Family("albert", "sequence_classification", dict(BERT, embedding_size=24), without=frozenset({"checkpointing"})),
    Family(
        "deberta-v2",
        "token_classification",  # the other head reads the labels' values
        dict(
            BERT,
            relative_attention=True,
            position_buckets=32,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            type_vocab_size=0,
        ),
        without=frozenset({"sdpa", "reentrant"}),  # all layers share the relative embeddings: torch refuses a second backward
    ),
    Family(
        "deberta",
        "token_classification",
        dict(BERT, relative_attention=True, pos_att_type=["c2p", "p2c"], position_biased_input=False, type_vocab_size=0),
        without=frozenset({"sdpa", "reentrant", "bfloat16"}),  # its biases of query and value stay float32
    ),
    Family(
        "modernbert",
        "sequence_classification",
        dict(BERT, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2),
        layer_list=_kinds,
    ),
    Family("granite", config=LLAMA),
    Family("cohere", config=LLAMA),
    Family("olmo", config=LLAMA),
    Family("olmo2", config=LLAMA),
    Family("stablelm", config=dict(LLAMA, partial_rotary_factor=0.25)),
    Family("smollm3", config=LLAMA),
    Family("gemma3_text", config=dict(_WIDE, sliding_window=4096, query_pre_attn_scalar=24), layer_list=_kinds),
    Family("starcoder2", config=LLAMA),
    Family(
        "mixtral",
        config=dict(LLAMA, num_local_experts=4, num_experts_per_tok=2),
        without=MOE | {"default"},  # peft 0.21 forgets its default where it converts the names of experts
    ),
    Family(
        "qwen2_moe",
        config=dict(LLAMA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=88, shared_expert_intermediate_size=112),
        without=MOE,
    ),
    Family(
        "qwen3_moe",
        config=dict(_WIDE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=88),
        without=MOE,
    ),
    Family("olmoe", config=dict(LLAMA, num_experts=4, num_experts_per_tok=2), without=MOE),
    Family("granitemoe", config=dict(LLAMA, num_local_experts=4, num_experts_per_tok=2), without=MOE | {"mlp"}),
    Family("deepseek_v2", config=dict(LATENT, topk_method="greedy", topk_group=1, n_group=1), without=MOE),
    Family("deepseek_v3", config=dict(LATENT, q_lora_rank=48, n_group=2, topk_group=1), without=MOE),
    Family(
        "glm4_moe",
        config=dict(
            _WIDE,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            moe_intermediate_size=88,
            n_group=1,
            topk_group=1,
            first_k_dense_replace=1,
        ),
        without=MOE,
    ),
    Family("phimoe", config=dict(LLAMA, num_local_experts=4, num_experts_per_tok=2), without=MOE | {"lora"}),
    Family(
        "gpt_oss",
        config=dict(_WIDE, num_local_experts=4, num_experts_per_tok=2, sliding_window=4096),
        layer_list=_kinds,
        without=MOE | {"sdpa", "mlp"},
    ),
    Family("cohere2", config=dict(LLAMA, sliding_window=64), layer_list=_sliding),
    Family(
        "gemma4_text",
        config=dict(
            LLAMA,
            head_dim=16,
            global_head_dim=32,
            sliding_window=4096,
            vocab_size_per_layer_input=VOCAB,
            hidden_size_per_layer_input=24,
            num_kv_shared_layers=0,
            enable_moe_block=True,
            num_experts=4,
            top_k_experts=2,
            moe_intermediate_size=88,
        ),
        layer_list=_sliding,
        without=MOE,
    ),
    Family("qwen3_5_text", config=DELTA, layer_list=mostly_linear),
    Family(
        "qwen3_next",
        config=dict(DELTA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=88, shared_expert_intermediate_size=112),
        layer_list=_mostly_full,
        without=MOE,
    ),
    Family(
        "t5",
        "seq2seq_lm",
        {
            "d_model": 64,
            "d_kv": 24,
            "d_ff": 176,
            "num_heads": 4,
            "vocab_size": VOCAB,
            "decoder_start_token_id": 0,
            "pad_token_id": 0,
            "eos_token_id": 1,
        },
        depth=("num_layers", "num_decoder_layers"),
    ),
    Family(
        "bart",
        "seq2seq_lm",
        {
            "d_model": 64,
            "encoder_ffn_dim": 176,
            "decoder_ffn_dim": 176,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "vocab_size": VOCAB,
            "max_position_embeddings": 512,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 2,
        },
        depth=("encoder_layers", "decoder_layers"),
    ),
    Family("umt5", "seq2seq_lm", T5, depth=("num_layers", "num_decoder_layers")),
    Family("mbart", "seq2seq_lm", _BART, depth=("encoder_layers", "decoder_layers")),
    Family("pegasus", "seq2seq_lm", _BART, depth=("encoder_layers", "decoder_layers")),
    Family("m2m_100", "seq2seq_lm", _BART, depth=("encoder_layers", "decoder_layers")),
    *TEXT,
    *ENCODERS,
    *DECODERS,
    *SCANS,
    *MEDIA,
    *VISION_LANGUAGE,
    *MULTIMODAL,
    *IMAGES,
    *RELATIVES,
    *SOUND_AND_VIDEO,
)
BY_NAME = {family.name: family for family in FAMILIES}
