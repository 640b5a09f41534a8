"""`from_pretrained` of an Auto (or concrete) model class to `model.*`, `quantization.*` and the objective its head implies.

Without a dtype, transformers 4 loads float32 and transformers 5 the checkpoint's own dtype (`modeling_utils.py`).
"""

from __future__ import annotations

from memlint.dialects.bitsandbytes import dtype, quantization_facts
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, text
from memlint.facts import Fact, default, unknown
from memlint.facts.keys import normalise
from memlint.typed import Any
from memlint.versions import Versions

CHECKPOINT_DTYPE = "the checkpoint's own dtype"
"""The reason of an unknown `model.dtype` that is left to the checkpoint; the model catalogue may know it."""

_OBJECTIVES = (
    ("ForCausalLM", "causal_lm"), ("ForSeq2SeqLM", "seq2seq_lm"), ("ForConditionalGeneration", "seq2seq_lm"),
    ("ForMaskedLM", "masked_lm"), ("ForSequenceClassification", "sequence_classification"),
    ("ForTokenClassification", "token_classification"), ("ForQuestionAnswering", "question_answering"),
    ("ForMultipleChoice", "multiple_choice"), ("ForImageClassification", "image_classification"),
    ("ForSpeechSeq2Seq", "speech_seq2seq"), ("ForCTC", "ctc"), ("ForAudioClassification", "audio_classification"),
    ("ForVideoClassification", "video_classification"), ("ForVision2Seq", "causal_lm"),
    ("ForImageTextToText", "causal_lm"), ("ForObjectDetection", "object_detection"),
    ("ForSemanticSegmentation", "semantic_segmentation"), ("LMHeadModel", "causal_lm"),
    ("ForPreTraining", "pretraining"), ("ForMaskedImageModeling", "masked_image_modeling"),
)  # fmt: skip


def objective(class_name: str) -> str | None:
    """The objective that a model class's head implies, or None (`AutoModel`)."""
    for suffix, name in _OBJECTIVES:
        if class_name.endswith(suffix):
            return name
    return "causal_lm" if class_name == "AutoModelWithLMHead" else None


def load_facts(class_name: str, native: Native, versions: Versions | None = None) -> Facts:
    """Facts of `class_name.from_pretrained(...)`.

    `native`: its keyword arguments, the first positional one as `pretrained_model_name_or_path`. A `quantization_config` object
    is the caller's to translate (`quantization_facts`); the bare `load_in_4bit` is done here. `model.dtype` is unknown with
    the reason `CHECKPOINT_DTYPE` when the checkpoint decides.
    """
    versions = versions or Versions()
    facts: Facts = {}
    model = given(native, "pretrained_model_name_or_path", "model_name_or_path", "model_name", "model_id")
    if model is not None:
        facts["model.id"] = derive(text, model)
    facts["model.dtype"] = load_dtype(given(native, "dtype", "torch_dtype"), versions)
    cached = given(native, "use_cache")
    if cached is not None:
        facts["model.use_cache"] = cached
    attention = given(native, "attn_implementation")
    legacy = given(native, "use_flash_attention_2")
    if attention is not None:
        facts["model.attention"] = derive(lambda value: normalise("model.attention", text(value)), attention)
    elif legacy is not None and legacy.known and legacy.value is True:
        facts["model.attention"] = legacy.with_value("flash_attention_2")
    placement = given(native, "device_map")
    if placement is not None:
        facts["model.device_map"] = derive(lambda value: value if isinstance(value, str) else "explicit", placement)
    plan, ranks = given(native, "tp_plan"), given(native, "tp_size")
    if plan is not None or ranks is not None:
        facts["parallel.tensor_plan"] = derive(
            lambda how: how if isinstance(how, str) else "explicit", plan or default("auto", "tp_size")
        )
    if ranks is not None:
        facts["parallel.tensor"] = derive(integer, ranks)
    labels = given(native, "num_labels")
    if labels is not None:
        facts["model.num_labels"] = derive(integer, labels)
    if given(native, "load_in_4bit", "load_in_8bit") is not None:
        facts |= quantization_facts("BitsAndBytesConfig", native, versions)
    head = objective(class_name)
    if head is not None:
        facts["objective"] = default(head, f"head of {class_name}")
    return facts


def load_dtype(asked: Fact | None, versions: Versions) -> Fact:
    """The dtype of the loaded weights; unknown (`CHECKPOINT_DTYPE`) for `"auto"` and for transformers 5 without one."""
    if asked is None:
        if versions.at_least("transformers", "5.0"):
            return unknown(CHECKPOINT_DTYPE)
        return default("float32", f"{versions.note('transformers')} default")
    if asked.known and asked.value == "auto":
        return unknown(CHECKPOINT_DTYPE, asked.origin[0].span if asked.origin else None)
    return derive(dtype, asked)


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> argument of `from_pretrained`; None where it cannot say it."""
    if key == "model.dtype":
        return [("dtype", value)]
    if key == "model.attention":
        return [("attn_implementation", value)]
    return None


__all__ = ["CHECKPOINT_DTYPE", "boolean", "load_dtype", "load_facts", "objective", "write"]
