"""Every change that a rule or the plan may propose, written into every configuration dialect: exactly the right key, comments kept,
and read back. What a dialect cannot say is listed with the reason, and the list is exact.

`samples/` holds one or more files a dialect (`axolotl-fsdp.yaml` is a second one of `axolotl`), each line with a comment.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from memlint.dialects import CONFIGURATIONS, IN_TOML, by_name
from memlint.dialects.context import first_document
from memlint.extract import extract
from memlint.facts import TrainingRun
from memlint.fixes import fix_edits
from memlint.fixes.verify import says
from memlint.project import Project
from memlint.read.document import flatten
from memlint.source import Kind, Source, read

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "rules"
SAMPLES = sorted((HERE / "samples").iterdir())
DIALECTS = (*CONFIGURATIONS, *IN_TOML)

CHANGES: dict[str, dict[str, Any]] = {
    "smaller batch, more steps": {"batch.micro_batch_size": 1, "batch.gradient_accumulation_steps": 8},
    "shorter": {"batch.sequence_length": 1024},
    "checkpointing": {"checkpointing.enabled": True},
    "not reentrant": {"checkpointing.use_reentrant": False},
    "checkpoints on the host": {"checkpointing.enabled": True, "checkpointing.offload": True},
    "sdpa": {"model.attention": "sdpa"},
    "flash attention": {"model.attention": "flash_attention_2"},
    "half weights": {"model.dtype": "bfloat16"},
    "bf16": {"precision": "bf16-mixed"},
    "fp16": {"precision": "fp16-mixed"},
    "fused loss": {"loss.logits": "fused"},
    "8-bit adam": {"optimizer.name": "adamw_bnb_8bit"},
    "fused adam": {"optimizer.name": "adamw_torch_fused"},
    "double quantization": {"quantization.double_quant": True},
    "compute dtype": {"quantization.compute_dtype": "bfloat16"},
    "storage dtype": {"quantization.storage_dtype": "bfloat16"},
    "qlora": {"quantization.method": "bnb_4bit", "quantization.quant_type": "nf4", "quantization.double_quant": True,
              "quantization.compute_dtype": "bfloat16"},
    "lora": {"adapter.method": "lora", "adapter.r": 16, "adapter.alpha": 32, "adapter.target_modules": "all-linear"},
    "smaller evaluation": {"eval.batch_size": 1},
    "sharded checkpoint": {"parallel.gather_weights_on_save": False},
    "zero3": {"parallel.strategy": "zero3"},
    "fsdp2": {"parallel.strategy": "fsdp2"},
    "smaller buckets": {"parallel.reduce_bucket_size": 50_000_000, "parallel.allgather_bucket_size": 50_000_000},
    "wrapped layers": {"parallel.wrap_policy": "transformer"},
    "reduced each time": {"parallel.sync_each_batch": True},
    "fully sharded": {"parallel.fsdp_sharding": "full_shard", "parallel.reshard_after_forward": True},
    "all on the host": {"parallel.offload_params": "cpu", "parallel.offload_optimizer": "cpu"},
    "states on the host": {"parallel.offload_optimizer": "cpu"},
    "precomputed reference": {"reference_model": "precomputed"},
    "sharded generation": {"generation.gathers_model": False},
    "plain compilation": {"compile.mode": "default"},
}  # fmt: skip
"""The sets of changes of the rule pages and of `memlint/fixes/steps.py`, with one value each."""

_UNSAID = {
    "a launcher says nothing of the model, the batch, the loss, the optimizer and the script": (
        "accelerate: smaller batch, more steps; shorter; not reentrant; checkpoints on the host; sdpa; flash attention;"
        " half weights; fused loss; 8-bit adam; fused adam; double quantization; compute dtype; storage dtype; qlora; lora;"
        " smaller evaluation; smaller buckets; reduced each time; precomputed reference; sharded generation; plain compilation"
    ),
    "an engine says nothing of the model, the loss and the script, and knows no optimizer of bitsandbytes": (
        "deepspeed: shorter; checkpointing; not reentrant; checkpoints on the host; sdpa; flash attention; half weights; fused loss;"
        " 8-bit adam; double quantization; compute dtype; storage dtype; qlora; lora; smaller evaluation; fsdp2; wrapped layers;"
        " reduced each time; fully sharded; precomputed reference; sharded generation; plain compilation"
    ),
    "ZeRO is in a file of its own, which may not be there: only a file that is linked can be changed": (
        "axolotl: zero3; smaller buckets; sharded checkpoint; states on the host\n"
        "llama_factory: zero3; smaller buckets; sharded checkpoint; states on the host\n"
        "trl_yaml: zero3; smaller buckets; sharded checkpoint; states on the host\n"
        "ms_swift: smaller buckets; sharded checkpoint"
    ),
    "the file has no generation under ZeRO-3": "axolotl, llama_factory, ms_swift: sharded generation",
    "follows another value: the precision, the dtype of the model or of the card": (
        "llama_factory: compute dtype; storage dtype\ntrl_yaml: compute dtype\naxolotl: storage dtype\n"
        "unsloth_studio: half weights; bf16; fp16; compute dtype; storage dtype; qlora; double quantization\n"
        "litgpt: compute dtype; qlora\nludwig: half weights\nlightning_cli: half weights"
    ),
    "the framework always wraps layers": "llama_factory, ms_swift: wrapped layers",
    "the framework has no such setting, or the choice is made in code": (
        "llama_factory, ms_swift: precomputed reference\nms_swift: checkpoints on the host\n"
        "torchtune: sdpa; flash attention; bf16; fp16; double quantization; compute dtype; storage dtype; sharded checkpoint; zero3;"
        " smaller buckets; wrapped layers; reduced each time; fully sharded; states on the host; precomputed reference;"
        " sharded generation; plain compilation; not reentrant\n"
        "unsloth_studio: not reentrant; sdpa; flash attention; fused loss; smaller evaluation; sharded checkpoint; zero3; fsdp2;"
        " smaller buckets; wrapped layers; reduced each time; fully sharded; all on the host; states on the host;"
        " precomputed reference; sharded generation; plain compilation\n"
        "litgpt: not reentrant; checkpoints on the host; sdpa; flash attention; fused loss; smaller evaluation; storage dtype;"
        " sharded checkpoint; zero3; smaller buckets; wrapped layers; reduced each time; fully sharded; all on the host;"
        " states on the host; precomputed reference; sharded generation; plain compilation; fp16; fused adam\n"
        "verl: not reentrant; checkpoints on the host; sdpa; flash attention; bf16; fp16; fused adam; double quantization; compute dtype;"
        " storage dtype; qlora; smaller evaluation; sharded checkpoint; zero3; smaller buckets; wrapped layers;"
        " reduced each time; fully sharded; states on the host; precomputed reference; sharded generation; plain compilation\n"
        "verl_ppo: not reentrant; fused adam; double quantization; compute dtype; storage dtype; qlora; smaller evaluation;"
        " sharded checkpoint; zero3; smaller buckets; wrapped layers; reduced each time; fully sharded; states on the host;"
        " precomputed reference; sharded generation; plain compilation\n"
        "llama_factory_v1: not reentrant; checkpoints on the host; half weights; fp16; 8-bit adam; fused adam; double quantization;"
        " compute dtype; storage dtype; qlora; smaller evaluation; sharded checkpoint; zero3; smaller buckets; wrapped layers;"
        " reduced each time; fully sharded; all on the host; states on the host; precomputed reference; sharded generation;"
        " plain compilation\n"
        "open_instruct: not reentrant; checkpoints on the host; sdpa; flash attention; half weights; bf16; fp16; fused loss;"
        " 8-bit adam; fused adam; double quantization; compute dtype; storage dtype; smaller evaluation; sharded checkpoint; zero3;"
        " fsdp2; smaller buckets; wrapped layers; reduced each time; fully sharded; all on the host; states on the host;"
        " precomputed reference; sharded generation; plain compilation\n"
        "ludwig: not reentrant; checkpoints on the host; sdpa; flash attention; bf16; fused loss; fused adam; storage dtype;"
        " sharded checkpoint; zero3; fsdp2; smaller buckets; wrapped layers; reduced each time; fully sharded; all on the host;"
        " states on the host; precomputed reference; sharded generation; plain compilation\n"
        "lightning_cli: smaller batch, more steps; shorter; checkpointing; not reentrant; checkpoints on the host; sdpa;"
        " flash attention; fused loss; 8-bit adam; fused adam; double quantization; compute dtype; storage dtype; qlora; lora;"
        " smaller evaluation; sharded checkpoint; fsdp2; smaller buckets; wrapped layers; reduced each time; precomputed reference;"
        " sharded generation; plain compilation\n"
        "torchtitan: not reentrant; checkpoints on the host; sdpa; flash attention; bf16; fp16; fused loss; 8-bit adam; fused adam;"
        " double quantization; compute dtype; storage dtype; qlora; lora; smaller evaluation; sharded checkpoint; zero3;"
        " smaller buckets; wrapped layers; reduced each time; fully sharded; states on the host; precomputed reference;"
        " sharded generation; plain compilation\n"
        "sd_scripts: shorter; not reentrant; flash attention; half weights; fused loss; fused adam; double quantization; compute dtype;"
        " storage dtype; qlora; lora; smaller evaluation; sharded checkpoint; zero3; fsdp2; smaller buckets; wrapped layers;"
        " reduced each time; fully sharded; all on the host; states on the host; precomputed reference; sharded generation;"
        " plain compilation"
    ),
    "the loss works in chunks instead (`loss.logits: chunked`)": "torchtune: fused loss",
    "quantizes with torchao (`torchao_nf4`), and the adapter is in the builder's name": "torchtune: qlora; lora",
    "the adapted modules have no setting": "open_instruct: lora; qlora",
    "the adapted modules are switches, query and value by default": "litgpt: lora",
    "the recipe on the command line decides": "torchtune: fsdp2",
    "several devices are FSDP, which checkpoints": "litgpt: checkpointing; fsdp2",
    "FSDP is the trainer's only way": "verl, verl_ppo, torchtitan: fsdp2",
    "always bfloat16 there, or as the sample says": "verl_ppo: bf16",
    "the steps follow from a global batch size and the ranks": (
        "llama_factory_v1, nemo, megatron_bridge, megatron_yaml, ms_swift_ray, torchtitan: smaller batch, more steps"
    ),
    "prompt and completion have lengths of their own": "verl_ppo, ms_swift_ray: shorter",
    "Megatron-Core: its own optimizer, attention, losses, precision and sharding; its adapters are not written": (
        "nemo: not reentrant; checkpoints on the host; sdpa; flash attention; half weights; bf16; fp16; fused loss; 8-bit adam; fused adam;"
        " double quantization; compute dtype; storage dtype; qlora; lora; smaller evaluation; sharded checkpoint; zero3; fsdp2;"
        " smaller buckets; wrapped layers; reduced each time; fully sharded; all on the host; states on the host;"
        " precomputed reference; sharded generation; plain compilation\n"
        "megatron_bridge: not reentrant; checkpoints on the host; sdpa; flash attention; half weights; bf16; fp16; fused loss; 8-bit adam;"
        " fused adam;"
        " double quantization; compute dtype; storage dtype; qlora; lora; smaller evaluation; sharded checkpoint; zero3; fsdp2;"
        " smaller buckets; wrapped layers; reduced each time; fully sharded; all on the host; precomputed reference;"
        " sharded generation; plain compilation\n"
        "megatron_yaml: not reentrant; checkpoints on the host; half weights; bf16; fp16; fused loss; 8-bit adam; fused adam;"
        " double quantization; compute dtype; storage dtype; qlora; lora; smaller evaluation; sharded checkpoint; zero3; fsdp2;"
        " smaller buckets; wrapped layers; reduced each time; fully sharded; all on the host; precomputed reference;"
        " sharded generation; plain compilation\n"
        "ms_swift_ray: checkpointing; not reentrant; checkpoints on the host; sdpa; flash attention; half weights; bf16; fp16; fused loss;"
        " 8-bit adam; fused adam; double quantization; compute dtype; storage dtype; qlora; lora; smaller evaluation;"
        " sharded checkpoint; zero3; fsdp2; smaller buckets; wrapped layers; reduced each time; fully sharded; all on the host;"
        " states on the host; precomputed reference; sharded generation; plain compilation"
    ),
}
"""Reason -> `dialects: changes` that cannot be written for it."""


def unsaid() -> Iterator[tuple[str, str, str]]:
    """(dialect, change, reason) of the list above."""
    names = sorted(CHANGES, key=len, reverse=True)
    for reason, rows in _UNSAID.items():
        for row in rows.splitlines():
            dialects, _, rest = row.partition(": ")
            for part in rest.split("; "):
                assert part in names, part
                for dialect in dialects.split(", "):
                    yield dialect, part, reason


@cache
def runs() -> tuple[tuple[Path, str, TrainingRun, Project], ...]:
    """Each sample with its dialect, its run and its project."""
    found = []
    for path in SAMPLES:
        project = Project.around(str(path))
        (run,) = extract(str(path), project).runs
        found.append((path, path.stem.partition("-")[0], run, project))
    return tuple(found)


def wanted(run: TrainingRun, changes: dict[str, Any]) -> dict[str, Any]:
    """The changes with as many more steps as the batch is smaller, as rules propose them."""
    steps, batch = run.value("batch.gradient_accumulation_steps"), run.value("batch.micro_batch_size")
    if "batch.gradient_accumulation_steps" in changes and isinstance(steps, int) and isinstance(batch, int):
        return {**changes, "batch.gradient_accumulation_steps": steps * batch}
    return changes


def test_every_dialect_has_a_sample_that_is_read_as_it() -> None:
    assert {dialect for _, dialect, _, _ in runs()} == set(DIALECTS)
    for path, dialect, run, _ in runs():
        assert run.sites[0].dialect == dialect, path.name


def test_the_changes_are_those_of_the_rules_and_of_the_plan() -> None:
    proposed: set[str] = set()
    for page in RULES.glob("MEM*.md"):
        front = yaml.safe_load(page.read_text(encoding="utf-8").split("---")[1])
        proposed |= set((front.get("fix") or {}).get("changes", ()))
    written_here = {key for changes in CHANGES.values() for key in changes}
    assert proposed <= written_here


def check_written(path: Path, run: TrainingRun, project: Project, changes: dict[str, Any]) -> bool:
    """Whether the changes can be written; what is written must be right."""
    fixed = fix_edits(run, changes, project)
    if fixed is None or not fixed.edits:
        return False
    before, after = path.read_text(encoding="utf-8"), fixed.after[str(path)].text
    again = extract(str(path), project.with_texts(fixed.after)).runs[0]
    assert all(says(again, key, value) for key, value in changes.items())
    opcodes = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
    gone = [line for op in opcodes if op[0] != "equal" for line in before.splitlines()[op[1] : op[2]]]
    assert len(gone) <= len(changes) + 1, "only the lines of the changed keys"
    comments = [line.split("#", 1)[1] for line in before.splitlines() if "#" in line]
    assert comments == [line.split("#", 1)[1] for line in after.splitlines() if "#" in line], "every comment stays in its place"
    old, new = leaves(path, before), leaves(path, after)
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    assert changed <= native_keys(run, changes) | stated_at(path, run, changes), changed
    repeated = fix_edits(again, changes, project.with_texts(fixed.after))
    assert repeated is not None
    assert repeated.edits == (), "written twice changes nothing"
    return True


def native_keys(run: TrainingRun, changes: dict[str, Any]) -> set[str]:
    """The keys in which the dialect says the changes."""
    dialect = by_name(run.sites[0].dialect)
    ways = [dialect.write(key, value) or [] for key, value in changes.items()]
    if hasattr(dialect, "alternatives"):
        ways += [way for key, value in changes.items() for way in dialect.alternatives(key, value)]
    return {f".{name}" for way in ways for name, _ in way}


def stated_at(path: Path, run: TrainingRun, changes: dict[str, Any]) -> set[str]:
    """The keys whose values are written where the facts stand now, in whichever spelling."""
    places = {fact.origin[0].span for key in changes if (fact := run.facts.get(key)) is not None and fact.origin}
    document = first_document(read(str(path)))
    assert document is not None
    return {
        f".{name}"
        for name, fact in flatten(document).items()
        if fact.origin and fact.origin[0].span in places and not isinstance(fact.value, dict)
    }


def leaves(path: Path, text: str) -> dict[str, Any]:
    """The values of a text by dotted path, as the formats' own loaders read them."""
    if path.suffix == ".toml":
        document = first_document(Source(str(path), Kind.TOML, text))
        assert document is not None
        return {f".{name}": fact.value for name, fact in flatten(document).items() if not isinstance(fact.value, dict)}
    data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)

    def walk(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                yield from walk(item, f"{prefix}.{key}")
        else:
            yield prefix, repr(value)

    return dict(walk(data, ""))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_can_be_written_is_written_right_and_the_rest_is_explained(dialect: str) -> None:
    samples = [(path, run, project) for path, name, run, project in runs() if name == dialect]
    written = {
        name
        for name, changes in CHANGES.items()
        for path, run, project in samples
        if check_written(path, run, project, wanted(run, changes))
    }
    explained = {change for name, change, _ in unsaid() if name == dialect}
    assert written & explained == set(), "can be written after all"
    assert set(CHANGES) - written - explained == set(), "can be said neither here nor explained"


@pytest.mark.parametrize(
    ("pins", "changes", "line"),
    [
        # trl.ModelConfig: `torch_dtype` until 0.26, `dtype` from 0.23 on; SFTConfig: `max_seq_length` until 0.15, then `max_length`
        ("trl==0.11.4\n", {"model.dtype": "bfloat16"}, "torch_dtype: bfloat16"),
        ("trl==1.16.0\n", {"model.dtype": "bfloat16"}, "dtype: bfloat16"),
        ("trl==0.11.4\n", {"batch.sequence_length": 512}, "max_seq_length: 512"),
        ("trl==1.16.0\n", {"batch.sequence_length": 512}, "max_length: 512"),
    ],
)
def test_a_new_key_has_the_name_of_the_version_in_force(tmp_path: Path, pins: str, changes: dict[str, Any], line: str) -> None:
    (tmp_path / "requirements.txt").write_text(pins)
    path = tmp_path / "sft.yaml"
    path.write_text("model_name_or_path: a/b\ndataset_name: d\nper_device_train_batch_size: 2\npacking: true\nuse_peft: true\n")
    project = Project.around(str(path))
    fixed = fix_edits(extract(str(path), project).runs[0], changes, project)
    assert fixed is not None
    assert fixed.after[str(path)].text == path.read_text() + line + "\n"
