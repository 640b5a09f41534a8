"""Quantization configurations of transformers to `quantization.*` facts.

Read in transformers 5.24.0, `utils/quantization_config.py`: `BitsAndBytesConfig` computes in float32, as fp4, without double
quantization, stored as uint8, unless told otherwise.
"""

from __future__ import annotations

from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, text
from memlint.facts import Fact, default, unknown
from memlint.facts.keys import normalise
from memlint.typed import Any
from memlint.versions import Versions

_METHODS = {
    "GPTQConfig": "gptq", "GPTQModelConfig": "gptq", "AwqConfig": "awq", "HqqConfig": "hqq", "EetqConfig": "eetq",
    "AqlmConfig": "aqlm", "QuantoConfig": "int8", "FbgemmFp8Config": "fp8", "FineGrainedFP8Config": "fp8",
    "Mxfp4Config": "mxfp4", "CompressedTensorsConfig": "compressed_tensors", "HiggsConfig": "int4",
}  # fmt: skip
_BITS = {"gptq": 4, "awq": 4, "hqq": 4, "eetq": 8, "aqlm": 2, "fp8": 8, "mxfp4": 4}
_GROUPS = {"gptq": 128, "awq": 128, "hqq": 64}


def quantization_facts(class_name: str, native: Native, versions: Versions | None = None) -> Facts:
    """`quantization.*` of a quantization configuration class and its arguments.

    Also for the bare `load_in_4bit=True` of `from_pretrained` (`class_name` `BitsAndBytesConfig` with those arguments).
    """
    note = f"{(versions or Versions()).note('transformers')} default of {class_name}"
    if class_name == "BitsAndBytesConfig":
        return _bitsandbytes(native, note)
    if class_name == "TorchAoConfig":
        return {"quantization.method": _torchao(given(native, "quant_type"))}
    method = _METHODS.get(class_name)
    if method is None:
        return {"quantization.method": unknown(f"{class_name} is not a known quantization configuration")}
    bits, group = given(native, "bits", "nbits", "weights"), given(native, "group_size")
    facts: Facts = {"quantization.method": default(method, f"transformers.{class_name}")}
    if method in _BITS:
        facts["quantization.bits"] = derive(integer, bits) if bits else default(_BITS[method], note)
    if method in _GROUPS:
        facts["quantization.group_size"] = derive(integer, group) if group else default(_GROUPS[method], note)
    return facts


def _bitsandbytes(native: Native, note: str) -> Facts:
    off = default(False, note)
    four, eight = given(native, "load_in_4bit") or off, given(native, "load_in_8bit") or off
    method = derive(lambda a, b: "bnb_4bit" if boolean(a) else "bnb_8bit" if boolean(b) else "none", four, eight)
    facts: Facts = {"quantization.method": method}
    skip = given(native, "llm_int8_skip_modules")
    if skip is not None:
        facts["quantization.skip_modules"] = skip
    if "bnb_4bit" not in method.values:
        return facts
    storage = given(native, "bnb_4bit_quant_storage")
    return facts | {
        "quantization.quant_type": derive(text, given(native, "bnb_4bit_quant_type") or default("fp4", note)),
        "quantization.double_quant": derive(boolean, given(native, "bnb_4bit_use_double_quant") or default(False, note)),
        "quantization.compute_dtype": derive(dtype, given(native, "bnb_4bit_compute_dtype") or default("float32", note)),
        "quantization.storage_dtype": derive(dtype, storage) if storage else default("uint8", note),
    }


def _torchao(kind: Fact | None) -> Fact:
    if kind is None:
        return unknown("the torchao quantization type is not given")
    return derive(lambda value: "int4" if "int4" in str(value).lower() else "fp8" if "float8" in str(value).lower()
                  else "int8", kind)  # fmt: skip


def dtype(value: Any) -> str:
    """A dtype in its canonical spelling (`torch.bfloat16`, `bf16` -> `bfloat16`); raises ValueError for anything else."""
    name = str(normalise("model.dtype", str(value)))
    if name not in ("float32", "bfloat16", "float16", "float8", "int8", "uint8"):
        raise ValueError(value)
    return name


_WRITE = {
    "quantization.quant_type": "bnb_4bit_quant_type", "quantization.double_quant": "bnb_4bit_use_double_quant",
    "quantization.compute_dtype": "bnb_4bit_compute_dtype", "quantization.storage_dtype": "bnb_4bit_quant_storage",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> argument of `BitsAndBytesConfig`; None where it cannot say it. Dtypes are written as their names."""
    if key == "quantization.method" and value in ("bnb_4bit", "bnb_8bit"):
        return [("load_in_4bit", value == "bnb_4bit"), ("load_in_8bit", value == "bnb_8bit")]
    return [(_WRITE[key], value)] if key in _WRITE else None
