"""How well models are known: the survey's ids, parameter counts, the time of a look-up, the size of the wheel.

    python -m benchmarks.models                 # what needs no other library
    python -m benchmarks.models --meta          # and every entry built on the meta device (torch and transformers: the extra `oracle`)
    python -m benchmarks.models --bars          # exit code 1 when a figure is beyond its bar

A parameter count is compared twice: what the catalogue stores with the model that transformers builds, and what an estimate counts
(the memory page of the model type) with the same model, under the head that is trained.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.memory.families import PAGES
from memlint.memory.result import CannotEstimate
from memlint.models import catalogue, lookup, table
from memlint.source import Span

ROOT = Path(__file__).resolve().parents[1]
SURVEY = ROOT / "tests" / "models" / "model_ids.tsv"

EXACT, COUNTED, MILLISECONDS, MEBIBYTES = 0.95, 0.98, 5.0, 3.0
"""The bars: share of mentions that resolve exactly, share of entries that are counted exactly, a cold look-up, the wheel."""

HEADS = {
    "ForMaskedLM": "masked_lm", "ForCausalLM": "causal_lm", "LMHeadModel": "causal_lm", "ForImageClassification": "image_classification",
    "ForConditionalGeneration": "seq2seq_lm", "MTModel": "seq2seq_lm", "ForAudioClassification": "audio_classification",
    "ForCTC": "ctc", "ForVideoClassification": "video_classification", "ForSemanticSegmentation": "semantic_segmentation",
    "ForSequenceClassification": "sequence_classification",
}  # fmt: skip
"""What a class is trained for, by the end of its name; a backbone is trained under the first head that its type has."""


class Difference(NamedTuple):
    """An entry whose count is not that of the built model."""

    model_id: str
    counted: int | None
    built: int | None
    reason: str = ""


def survey() -> Counter[str]:
    """Mentions (files) of the survey's ids by how they resolve: exact, bounded, unknown."""
    found: Counter[str] = Counter()
    for line in SURVEY.read_text(encoding="utf-8").splitlines()[1:]:
        model_id, files = line.split("\t")[:2]
        known = lookup(model_id)
        found["exact" if known.exact else "bounded" if known.architecture else "unknown"] += int(files)
    return found


def entries() -> Iterator[dict[str, Any]]:
    """Every entry of the catalogue."""
    for _, line in table.items(catalogue.FILE):
        if line.startswith("{"):
            yield json.loads(line)


def trained_class(row: dict[str, Any], transformers: Any) -> str:
    """The class with the head that is trained: a backbone's usual one, masked words alone for BERT's two tasks."""
    name = own_class(row)
    bare = name.endswith("Model") and not name.endswith(("LMHeadModel", "MTModel"))
    stem = name.removesuffix("Model") if bare else name.removesuffix("ForPreTraining")
    if stem == name:
        return name
    return next((headed for end in HEADS if hasattr(transformers, headed := stem + end)), name)


def own_class(row: dict[str, Any]) -> str:
    """The class that was counted, without what is said about it ("BertModel(no pooler)")."""
    return str(row.get("class") or "").partition("(")[0]


def objective_of(name: str) -> str:
    """What a class is trained for."""
    return next((head for end, head in HEADS.items() if name.endswith(end)), "causal_lm")


def counted_by_page(row: dict[str, Any], objective: str, labels: int) -> int | None:
    """The parameters that an estimate counts; None where no page describes the type."""
    facts = {
        "framework.name": "transformers", "framework.version": "5.24.0", "model.dtype": "bfloat16", "precision": "bf16-true",
        "batch.micro_batch_size": 1, "batch.sequence_length": 64, "batch.packing": True, "optimizer.name": "sgd",
        "objective": objective, "model.num_labels": labels,
    }  # fmt: skip
    run = TrainingRun("", Span("", 1, 1, 1, 1), {key: fixed(value) for key, value in facts.items()})
    try:
        return estimate(run, catalogue.architecture(row)).parameters
    except CannotEstimate:
        return None


def built(row: dict[str, Any], transformers: Any, named: str = "") -> int | None:
    """The parameters of the model that transformers builds on the meta device; None where it has no class or lacks a library."""
    from memlint.models import hf

    if row.get("library") == "diffusers":
        return built_by_diffusers(row)
    config = hf.read(transformers, row["config"])
    if config is None:
        return None
    try:
        return hf.count(hf.build(transformers, config, named or own_class(row))).params
    except ImportError:  # Gemma 3n's vision tower is timm's
        return None


def built_by_diffusers(row: dict[str, Any]) -> int | None:
    """The same for a network of diffusers; None where it is not installed."""
    if not all(find_spec(name) for name in ("diffusers", "torch")):
        return None
    import diffusers
    import torch

    with torch.device("meta"):
        model = getattr(diffusers, row["class"])(**{key: value for key, value in row["config"].items() if key != "model_type"})
    return sum(parameter.numel() for parameter in model.parameters())


def catalogue_against_meta(transformers: Any, rows: list[dict[str, Any]]) -> list[Difference]:
    """The entries whose stored count differs from the built model's, and those that cannot be built (of other code)."""
    found = []
    for row in rows:
        count, real = row.get("params"), built(row, transformers)
        if count != real or real is None:
            found.append(Difference(row["id"], count, real, "" if real is not None else "not built"))
    return found


def pages_against_meta(transformers: Any, rows: list[dict[str, Any]]) -> list[Difference]:
    """The entries whose estimate counts other parameters than the built model has, under the head that is trained.

    Where that is the entry's own class, what the catalogue stores stands for the built model.
    """
    found = []
    for row in rows:
        name = trained_class(row, transformers)
        count = counted_by_page(row, objective_of(name), int(row["config"].get("num_labels") or 2))
        if count is None:
            continue
        real = row.get("params") if name == own_class(row) else built(row, transformers, name)
        if real is not None and count != real:
            found.append(Difference(row["id"], count, real))
    return found


def cold_look_up(rounds: int = 7) -> float:
    """Milliseconds of the first look-up in a fresh process, the catalogue's modules loaded by it; the fastest of some."""
    code = (
        "import json, os, re, time\nimport memlint.facts, memlint.source\nt = time.perf_counter()\n"
        "from memlint.models import lookup\nlookup('unsloth/llama-3-8b-bnb-4bit')\nprint((time.perf_counter() - t) * 1e3)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True) for _ in range(rounds)
    ]
    return min(float(run.stdout) for run in runs)


def wheel_size() -> int:
    """Bytes of the wheel that pip builds of this tree (its build backend comes from a package index)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(ROOT)]
        subprocess.run(command, check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.stat().st_size


def main() -> int:
    """Print the figures; 1 with `--bars` when one is beyond its bar."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--meta", action="store_true", help="build every entry on the meta device")
    parser.add_argument("--bars", action="store_true", help="fail when a figure is beyond its bar")
    options = parser.parse_args()
    rows = list(entries())
    mentions = survey()
    share = mentions["exact"] / mentions.total()
    paged = sum(row["config"]["model_type"] in PAGES for row in rows)
    print(
        f"survey: {share:.1%} of {mentions.total()} mentions exact, {mentions['bounded']} bounded, {mentions['unknown']} unknown"
    )
    print(
        f"catalogue: {len(rows)} entries, {sum(bool(row.get('verified')) for row in rows)} verified, {paged} with a memory page"
    )
    milliseconds, size = cold_look_up(), wheel_size()
    print(f"cold look-up: {milliseconds:.1f} ms; wheel: {size / 2**20:.2f} MiB")
    held = [share >= EXACT, milliseconds <= MILLISECONDS, size <= MEBIBYTES * 2**20]
    if options.meta:
        import transformers

        transformers.logging.set_verbosity_error()
        for name, differences in (
            ("stored", catalogue_against_meta(transformers, rows)),
            ("estimated", pages_against_meta(transformers, rows)),
        ):
            wrong = sum(difference.built is not None for difference in differences)
            able = len(rows) - (len(differences) - wrong) if name == "stored" else paged
            held.append(wrong <= able * (1 - COUNTED))
            print(f"parameters {name}: {1 - wrong / able:.2%} of {able} entries exact against meta instantiation")
            for difference in differences:
                print(
                    f"  {difference.model_id}: {difference.counted} counted, {difference.built} built {difference.reason}".rstrip()
                )
    return 1 if options.bars and not all(held) else 0


if __name__ == "__main__":
    sys.exit(main())
