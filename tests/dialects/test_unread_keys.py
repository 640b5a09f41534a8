"""The list of keys that no dialect looks at: short, sorted and explained."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from memlint.dialects import by_name, recognise

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATIONS = [ROOT / "tests" / "corpus" / "extraction" / "configs", ROOT / "tests" / "corpus" / "extra", ROOT / "examples"]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("unread_keys", ROOT / "tools" / "unread_keys.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_key_of_the_corpus_is_read_or_sorted(tool: ModuleType) -> None:
    unsorted: Counter[str] = Counter()
    files = 0
    for root in CONFIGURATIONS:
        for document in tool.documents(root):
            found = recognise(document)
            if found is None:
                continue
            files += 1
            keys = Counter(tool.unread(document, found[0].NAME, root))
            unsorted.update(f"{document.path}: {key}" for key in tool.sort(found[0].NAME, keys).unsorted)
    assert files > 60
    assert not unsorted


def test_what_a_dialect_reads_is_not_listed_and_what_nobody_knows_is(tool: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "base_model: a/b\nmicro_batch_size: 2\nsequence_len: 1024\nlearning_rate: 1e-4\nqat: {group_size: 32}\nbrand_new_memory: 3\n"
        "fsdp_config: {offload_params: true}\n"
    )
    (document,) = tool.documents(tmp_path)
    keys = Counter(tool.unread(document, "axolotl", tmp_path))
    assert set(keys) == {"learning_rate", "qat.group_size", "brand_new_memory"}
    by_topic = tool.sort("axolotl", keys)
    assert set(by_topic.unsorted) == {"brand_new_memory"}
    assert set(by_topic.irrelevant) == {"learning_rate"}
    assert [list(found) for found in by_topic.open.values()] == [["qat.group_size"]]


def test_every_open_topic_stands_in_the_documentation(tool: ModuleType) -> None:
    text = (ROOT / "docs" / "dialects.md").read_text()
    rows = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")}
    assert {topic.why for topic in tool.topics("open")} <= rows


def test_topics_name_dialects_that_exist(tool: ModuleType) -> None:
    for kind in ("open", "irrelevant"):
        for topic in tool.topics(kind):
            assert topic.why
            assert topic.keys
            assert all(name == by_name(name).NAME for name in topic.dialects)


def test_no_topic_hides_what_decides_memory(tool: ModuleType) -> None:
    """Words that every framework has for what decides memory must never be sorted out as irrelevant, in a dialect to come."""
    plain = ("micro_batch_size", "batch_size", "gradient_checkpointing", "activation_checkpointing", "precision", "load_in_4bit",
             "max_seq_length", "cutoff_len", "optimizer", "optim", "lora_rank", "hidden_size", "num_layers", "quantization_bit",
             "offload_params", "cpu_offload", "zero_stage", "sharding_strategy", "attn_implementation", "packing")  # fmt: skip
    hidden = [key for key in plain for topic in tool.topics("irrelevant") if not topic.dialects and topic.holds("new", key)]
    assert hidden == []
