"""Tiny configs of encoders and encoder-decoders, and of the heads that models are trained with beside their usual one."""

from __future__ import annotations

from .bases import BERT, LLAMA, T5
from .family import VOCAB, Family

_MODERN = dict(BERT, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2)
_MARIAN = {
    "d_model": 64,
    "encoder_ffn_dim": 176,
    "decoder_ffn_dim": 176,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "scale_embedding": True,
}


def _kinds(layers: int) -> dict[str, list[str]]:
    return {"layer_types": ["full_attention"] * layers}


ENCODERS: tuple[Family, ...] = (
    Family("mpnet", "sequence_classification", BERT, without=frozenset({"sdpa", "checkpointing"})),
    Family("nomic_bert", "sequence_classification", BERT),
    Family("layoutlm", "token_classification", dict(BERT, max_2d_position_embeddings=128)),
    Family("ernie", "sequence_classification", BERT),
    Family("marian", "seq2seq_lm", _MARIAN, depth=("encoder_layers", "decoder_layers")),
    Family("mt5", "seq2seq_lm", dict(T5, feed_forward_proj="gated-gelu"), depth=("num_layers", "num_decoder_layers")),
    Family("bert", "question_answering", BERT, use="answers"),
    Family("modernbert", "token_classification", _MODERN, use="tokens", layer_list=_kinds),
    Family("llama", "sequence_classification", dict(LLAMA, head_dim=24), use="score"),
)
