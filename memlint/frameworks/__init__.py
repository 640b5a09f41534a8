"""Training scripts to training runs: the frameworks as models that the abstract interpreter asks.

`read_script` is the door. One module a concern: `models`, `adapters`, `configurations`, `trainers`, `loops` (raw
PyTorch and what rides on it: `accelerators`, `engines`, `parallel`, `contexts`, `batches`), `lightning`, `unsloth`,
`probes`, `installed` (versions), `processes`; `library` routes calls to them.
"""

from __future__ import annotations

import re
import sys

from memlint.facts import Extraction
from memlint.read.jobfile import LAUNCH
from memlint.source import ReadError, Source
from memlint.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memlint.read.pyeval.machine import Launch

_TRAINS = (
    r"Trainer\b",
    r"\.(?:train|fit|backward|step)\s*\(",
    r"notebook_launcher",
    r"exec\(",
    r"(?m)^[ \t]*(?:from\s+\S*(?:train|tune|main|cli|run)\S*\s+import|import\s+\S*(?:train|tune|main))",
)
"""What a script that trains has: the call itself, or an import of the module that makes it. Apart, because a search for one word is
twenty times as fast as one for any of two."""
_LIBRARIES = (
    r"(?m)\b(torch|transformers|trl|peft|accelerate|deepspeed|lightning|pytorch_lightning|unsloth|sentence_transformers|diffusers|timm)\b"
    r"|^from \S+ import|^import "
)


_STARTS = (r"subprocess\b(?<!\wsubprocess)", r"os\.system\(", r"sagemaker\b(?<!\wsagemaker)")
"""What a script that starts a training elsewhere has."""


_IMPORTED = r"(?m)^[ \t]*(?:from|import)[ \t]+(\w+|\.)"
_ACTS = r"(?m)__main__|^@|^(?:\w+\.)*\w+\("
_FOREIGN = sys.stdlib_module_names | frozenset(
    """torch transformers trl peft accelerate deepspeed datasets numpy pandas tqdm yaml requests PIL matplotlib sklearn scipy wandb
    tensorflow jax flax keras flask fastapi uvicorn pytest setuptools gradio streamlit vllm tokenizers sentencepiece safetensors
    huggingface_hub evaluate bitsandbytes einops cv2 ray openai click fire typer tyro absl hydra omegaconf pydantic
    rich""".split()  # noqa: SIM905
)
"""Modules that are no part of a project, as far as a script that acts by them alone trains nothing."""


def _any_of(patterns: tuple[str, ...], text: str) -> bool:
    return any(re.search(pattern, text) for pattern in patterns)


def could_train(text: str) -> bool:
    """Whether a Python text could start a training at all; what fails this is not parsed."""
    if _any_of(_TRAINS, text) or (_any_of(_STARTS, text) and re.search(LAUNCH, text)):
        return re.search(_LIBRARIES, text) is not None
    return re.search(_ACTS, text) is not None and not _FOREIGN.issuperset(re.findall(_IMPORTED, text))


def read_script(source: Source, project: Any = None, command: Launch | None = None) -> Extraction:
    """The training runs of a Python script, in source order.

    `command` is the launch that starts it (without one, overridable defaults stand). Never raises for bad input: what
    cannot be read is in `errors`.
    """
    if not could_train(source.text):
        return Extraction()
    from memlint.dialects.context import Context
    from memlint.frameworks.habits import habits
    from memlint.frameworks.library import Frameworks
    from memlint.frameworks.runs import distinct_runs
    from memlint.frameworks.state import Collected
    from memlint.read.pyeval.script import run_script
    from memlint.versions import pins_inside, versions_for

    pinned = {**pins_inside(source.text), **(getattr(project, "pinned", None) or {})}
    context = Context(versions_for(source.path, pinned), source.path, project, getattr(command, "directory", None))
    collected = Collected(context, source.path, lambda: habits(source))
    try:
        run_script(source, Frameworks(collected), project, command)
    except ReadError as error:
        return Extraction(errors=(error,))
    runs = tuple(distinct_runs(collected.runs, command is not None and not getattr(command, "passthrough", False)))
    if command is not None or not collected.started:
        return Extraction(runs)
    from memlint.launch.started import read_started  # a script that is launched itself is not followed further

    started = read_started(collected.started, source.path, project)
    return Extraction((*runs, *started.runs), started.errors)


__all__ = ["could_train", "read_script"]
