"""The last step of every reader: facts that follow only from several others.

Call `settle` once, when all facts of a run are together.

A decision that was made here: the truncation length of an unpacked run (Axolotl, LLaMA-Factory, torchtune, litgpt, ms-swift,
open-instruct, TRL, transformers) is taken as the length, and `batch.sequence_length_is_cap` is not set. A cap lowers the low end of
the estimate by about a quarter, for data that never reach it; among the thousands of samples of a real data set some row nearly
always does, and the longest batch decides the peak. `does not fit` does not rest on that: it must hold for the shortest samples, too
(`memlint.memory.scenarios.length_is_cap`).
"""

from __future__ import annotations

from memlint.dialects.derive import Facts, derive, soften
from memlint.facts import Fact, default, unknown
from memlint.facts.keys import normalise

_TRUE = {"bfloat16": "bf16-true", "float16": "fp16-true", "float32": "fp32"}
_QUANTIZED_NAMES = (
    ("gptq", "gptq"), ("awq", "awq"), ("aqlm", "aqlm"), ("hqq", "hqq"), ("bnb-4bit", "bnb_4bit"), ("bnb-nf4", "bnb_4bit"),
    ("bnb-8bit", "bnb_8bit"), ("mxfp4", "mxfp4"),
)  # fmt: skip
"""Parts of checkpoint names that say how the weights are quantized."""
_ENGINE = {"bf16-mixed": "bfloat16", "fp16-mixed": "float16"}


def settle(facts: Facts) -> Facts:
    """The facts with canonical spellings, and these consequences:

    * no autocast and half-precision weights is `bf16-true` or `fp16-true`; with a dtype that is not known, precision is unknown;
    * a checkpoint whose name says that it is quantized is taken at its word where nothing else quantizes;
    * DeepSpeed's engine casts the weights to the precision's dtype and keeps an fp32 master of what is trained.
    """
    settled = {key: _canonical(key, fact) for key, fact in facts.items()}
    settled |= _quantized_checkpoint(settled)
    precision, dtype = settled.get("precision"), settled.get("model.dtype")
    strategy = settled.get("parallel.strategy")
    if precision is not None and precision.values == ("fp32",):
        if dtype is None or dtype.values == ():
            reason = "no autocast is on, so the weights' dtype decides, and it is not known"
            settled["precision"] = unknown(reason, precision.origin[0].span if precision.origin else None)
        else:
            settled["precision"] = _weights_precision(precision, dtype)
    engine = strategy is not None and str(strategy.value).startswith("zero") and not _quantized(settled)
    if engine and precision is not None and precision.values and all(mode in _ENGINE for mode in precision.values):
        settled["model.dtype"] = soften(derive(_ENGINE.__getitem__, precision), "DeepSpeed's engine casts the weights")
        settled["optimizer.master_weights"] = default(True, "DeepSpeed's engine keeps an fp32 master")
    return settled


def _quantized_checkpoint(facts: Facts) -> Facts:
    model, method = facts.get("model.id"), facts.get("quantization.method")
    if model is None or not model.known or (method is not None and (not method.known or method.value != "none")):
        return {}
    name = str(model.value).lower().replace("_", "-")
    for part, quantized in _QUANTIZED_NAMES:
        if part in name:
            return {"quantization.method": default(quantized, f"the checkpoint's name says {part}")}
    return {}


def _quantized(facts: Facts) -> bool:
    method = facts.get("quantization.method")
    return method is not None and method.known and method.value != "none"


def _weights_precision(precision: Fact, dtype: Fact) -> Fact:
    def mode(value: object) -> str:
        return _TRUE.get(str(value), "fp32")

    result = derive(mode, dtype)
    return result if result.value != "fp32" else precision


def _canonical(key: str, fact: Fact) -> Fact:
    if fact.known:
        value = normalise(key, fact.value)
        return fact if value == fact.value else fact.with_value(value)
    return fact
