"""The YAML of Megatron-LM's functional tests and of the launchers copied from them: the flags of a training under `MODEL_ARGS`.

Read at Megatron-LM d98e8a64dd, `tests/functional_tests/shell_test_utils/_run_training.sh`: every entry becomes a flag, `true` one
without a value.
"""

from __future__ import annotations

from typing import Any

from memlint.dialects import megatron
from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native
from memlint.facts import fixed
from memlint.read.document import Document, MappingNode

NAME = "megatron_yaml"
FRAGMENT = False
INTERPOLATES = False
BLOCK = "MODEL_ARGS"
_LENGTHS = ("--train-iters", "--train-samples")


def recognise(document: Document) -> str | None:
    """`MODEL_ARGS` with a micro batch and an end of the training; a block for generation has no such end."""
    block = document.at(BLOCK)
    if not isinstance(block, MappingNode) or "--micro-batch-size" not in block:
        return None
    length = next((name for name in _LENGTHS if name in block), None)
    return f"has MODEL_ARGS with --micro-batch-size and {length}" if length else None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of the flags; which script takes them stands elsewhere, so an encoder's flags tell T5."""
    prefix = f"{BLOCK}.--"
    flags = {name.removeprefix(prefix).replace("-", "_"): fact for name, fact in native.items() if name.startswith(prefix)}
    if "decoder_seq_length" in flags or "encoder_num_layers" in flags:
        flags["megatron_script"] = fixed("pretrain_t5")
    return megatron.facts(flags, context)


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> flags of the block; None where Megatron-LM cannot say it."""
    pairs = megatron.write(key, value)
    if pairs is None or any(setting in (False, None) for _, setting in pairs):
        return None  # a flag that is off is one that is not there
    return [(f"{BLOCK}.--{name.replace('_', '-')}", setting) for name, setting in pairs]
