"""How the decoders on `llama.py`'s page deviate from Llama, read in transformers 5.24 `models/<type>/modeling_<type>.py`."""

from __future__ import annotations

from memlint.typed import NamedTuple


class Style(NamedTuple):
    """How a family deviates from Llama."""

    norm: str = "rms"
    """rms, gemma (times 1 + w in float32), rms_promoted (OLMo 2), layer (nn.LayerNorm), layer_plus (the same times 1 + w),
    cohere (own float32 layer norm), bare."""
    norm_bias: bool = False
    pre_norms: bool = True
    post_norms: bool = False
    qk_norm: str = ""
    """"" or head (per head_dim), full (over all heads at once), or rotated (per head_dim, behind the rotary embedding)."""
    splits_heads: bool = False
    """The fused projection holds query, key and value of each head side by side, which are picked one by one (Persimmon)."""
    parallel: bool = False
    """Attention and MLP read the same normalised input (Cohere)."""
    fused_qkv: bool = False
    fused_gate_up: bool = False
    gated: bool = True
    scales_embedding: bool = False
    scaled_table: bool = False
    """The embedding module itself scales (Gemma, transformers 5)."""
    scales_residual: bool = False
    scales_logits: bool = False
    float_logits: bool = False
    """The model casts its logits to float32 before the loss does."""
    names_attention: bool = False
    """A name of its own holds the attention's result to the end of the block (Llama 4)."""
    rotates: bool = True
    """Positions enter by a rotary embedding; else not at all."""
    rotates_windows: bool = False
    """Where some layers attend to a window, only these know of positions (EXAONE 4, Cohere 2)."""
    float_residual: bool = False
    """Residual connections are float32 (Mamba's `residual_in_fp32`)."""
    rope_concatenates: bool = False
    """Rotated and plain part of a head are joined by `cat` even when nothing is left plain."""
    own_positions: bool = False
    """Every sample comes with positions of its own (in time, height and width)."""
    float_tables: bool = False
    """The tables of the rotary embedding are float32 whatever the stream is; queries and keys are cast back."""
    repeats_tables: bool = False
    """Every layer repeats halves of the tables for itself (`repeat_interleave`)."""
    tables_by_kind: bool = False
    """Sliding and full attention have tables of their own."""
    spare_rows: int = 0
    """Rows of the embedding behind the vocabulary."""
    softcap: bool = False
    sinks: str = ""
    """A learned logit per head that takes part in the softmax: a column of scores (GPT-OSS), or a scale of the result (Granite SWA)."""
    qkv_bias: bool | None = None
    """None: from the config's `attention_bias`."""
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    halves_inner: bool = False
    """The config's `intermediate_size` counts both halves of the gated MLP (Qwen 1, `modeling_qwen.py` of the hub)."""
    names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


STYLES = {
    "qwen2": Style(qkv_bias=True, out_bias=False),
    "qwen": Style(qkv_bias=True, out_bias=False, fused_qkv=True, mlp_bias=False, halves_inner=True,
                  names=("c_attn", "", "", "c_proj", "w2", "w1", "c_proj")),
    "qwen2_vl_text": Style(qkv_bias=True, out_bias=False, own_positions=True),
    "qwen2_5_vl_text": Style(qkv_bias=True, out_bias=False, own_positions=True),
    "mllama_text_model": Style(spare_rows=8),
    "qwen3_vl_text": Style(qk_norm="head", own_positions=True),
    "qwen3": Style(qk_norm="head"),
    "gemma": Style(norm="gemma", scaled_table=True),
    "gemma2": Style(norm="gemma", scaled_table=True, post_norms=True, softcap=True),
    "vaultgemma": Style(norm="gemma", scaled_table=True, softcap=True),
    "gemma3_text": Style(tables_by_kind=True, norm="gemma", scaled_table=True, post_norms=True, qk_norm="head"),
    "gemma3": Style(tables_by_kind=True, norm="gemma", scaled_table=True, post_norms=True, qk_norm="head"),
    "granite": Style(scales_embedding=True, scales_residual=True, scales_logits=True),
    "granite_swa": Style(scales_embedding=True, scales_residual=True, scales_logits=True, sinks="scale"),
    "olmo": Style(norm="bare", float_tables=True),
    "olmo2": Style(norm="rms_promoted", pre_norms=False, post_norms=True, qk_norm="full", float_tables=True),
    "olmo3": Style(norm="rms_promoted", pre_norms=False, post_norms=True, qk_norm="full", float_tables=True, tables_by_kind=True),
    "phi3": Style(rope_concatenates=True, fused_qkv=True, fused_gate_up=True,
                  names=("qkv_proj", "", "", "o_proj", "gate_up_proj", "", "down_proj")),
    "cohere": Style(norm="cohere", parallel=True, scales_logits=True),
    "cohere2": Style(rotates_windows=True, norm="cohere", parallel=True, scales_logits=True),
    "starcoder2": Style(norm="layer", norm_bias=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True,
                        names=("q_proj", "k_proj", "v_proj", "o_proj", "", "c_fc", "c_proj")),
    "stablelm": Style(norm="layer", norm_bias=True, out_bias=False),
    "stablelm_epoch": Style(norm="layer", norm_bias=True, out_bias=False),
    "internlm2": Style(fused_qkv=True, names=("wqkv", "", "", "wo", "w1", "w3", "w2")),
    "internlm": Style(qkv_bias=True, out_bias=True),
    "baichuan": Style(fused_qkv=True, names=("W_pack", "", "", "o_proj", "gate_proj", "up_proj", "down_proj")),
    "glm": Style(repeats_tables=True, rope_concatenates=True, out_bias=False, fused_gate_up=True,
                 names=("q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "", "down_proj")),
    "glm4": Style(repeats_tables=True, rope_concatenates=True, out_bias=False, fused_gate_up=True, post_norms=True,
                  names=("q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "", "down_proj")),
    "glm4v_text": Style(rope_concatenates=True, qkv_bias=True, out_bias=False, fused_gate_up=True, post_norms=True, own_positions=True,
                        names=("q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "", "down_proj")),
    "chatglm": Style(fused_qkv=True, fused_gate_up=True, qkv_bias=True, out_bias=False,
                     names=("query_key_value", "", "", "dense", "dense_h_to_4h", "", "dense_4h_to_h")),
    "persimmon": Style(norm="layer", norm_bias=True, gated=False, fused_qkv=True, splits_heads=True, qk_norm="head",
                       qkv_bias=True, out_bias=True, mlp_bias=True,
                       names=("query_key_value", "", "", "dense", "", "dense_h_to_4h", "dense_4h_to_h")),
    "jais2": Style(norm="layer", norm_bias=True, gated=False,
                   names=("q_proj", "k_proj", "v_proj", "o_proj", "", "up_proj", "down_proj")),
    "orion": Style(norm="layer", norm_bias=True),
    "mimo": Style(qkv_bias=True, out_bias=False),
    "apertus": Style(gated=False, qk_norm="head", names=("q_proj", "k_proj", "v_proj", "o_proj", "", "up_proj", "down_proj")),
    "arcee": Style(gated=False, names=("q_proj", "k_proj", "v_proj", "o_proj", "", "up_proj", "down_proj")),
    "exaone4": Style(rotates_windows=True, pre_norms=False, post_norms=True, qk_norm="head"),
    "hunyuan_v1_dense": Style(qk_norm="rotated"),
    "helium": Style(norm="rms_promoted", out_bias=False, repeats_tables=True),
    "ernie4_5": Style(float_tables=True, repeats_tables=True),
    "nemotron": Style(norm="layer_plus", norm_bias=True, gated=False,
                      names=("q_proj", "k_proj", "v_proj", "o_proj", "", "up_proj", "down_proj")),
}  # fmt: skip
