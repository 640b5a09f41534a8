"""The defaults data and the tool that writes it."""

from __future__ import annotations

import importlib.util
import json
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from memlint.defaults import MISSING, default_fact, default_value, has_field
from memlint.versions import NEWEST, Pin, Versions, version_key

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("transformers", "trl", "peft", "accelerate")


def at(**pins: str) -> Versions:
    return Versions({name: Pin(version, "test") for name, version in pins.items()})


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh_defaults", ROOT / "tools" / "refresh_defaults.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("library", LIBRARIES)
def test_histories_are_in_order_and_end_with_the_newest_version(library: str) -> None:
    data = json.loads((ROOT / "memlint" / "defaults" / f"{library}.json").read_text())
    read = [version_key(version) for version in data["read"]]
    assert read == sorted(read)
    assert data["read"][-1] == NEWEST[library]
    for name, fields in data["classes"].items():
        for field, changes in fields.items():
            since = [version_key(change[0]) for change in changes]
            assert since == sorted(since), (name, field)
            assert all(change[0] in data["read"] for change in changes)
            assert all(before[1:] != after[1:] for before, after in pairwise(changes)), (name, field)


@pytest.mark.parametrize("library", LIBRARIES)
def test_writing_the_recorded_data_again_changes_nothing(library: str, tool: ModuleType) -> None:
    text = (ROOT / "memlint" / "defaults" / f"{library}.json").read_text()
    data = json.loads(text)
    releases = tool.unmerge(data)
    assert tool.dump({"library": library, "read": data["read"], "classes": tool.merge(releases)}) == text


def test_a_new_release_is_read_from_its_sources_without_importing_them(tool: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "trl" / "trainer"
    package.mkdir(parents=True)
    (package / "sft_config.py").write_text(
        "raise SystemExit('imported')\n"
        "@dataclass\nclass SFTConfig(_BaseConfig):\n"
        "    max_length: int | None = field(default=2048, metadata={})\n"
        "    packing: bool = True\n"
        "    model_init_kwargs: dict = field(default_factory=dict)\n"
        "    not_of_interest: int = 3\n"
    )
    release = tool.read_release(tmp_path, "trl")
    assert release["SFTConfig"] == {"bases": ["_BaseConfig"], "max_length": 2048, "packing": True, "model_init_kwargs": {}}
    history = tool.merge({"1.0": {"SFTConfig": {"bases": [], "max_length": 1024}}, "2.0": release})
    assert history["SFTConfig"]["max_length"] == [["1.0", 1024], ["2.0", 2048]]
    assert history["SFTConfig"]["packing"] == [["2.0", True]]


def test_lookup_walks_the_bases_of_the_version_in_force() -> None:
    assert default_value("trl", "SFTConfig", "per_device_train_batch_size", at()) == 8
    assert default_value("trl", "SFTConfig", "gradient_checkpointing", at(trl="0.21.0", transformers="4.57.6")) is False
    assert default_value("trl", "SFTConfig", "gradient_checkpointing", at(trl="0.22.0", transformers="4.57.6")) is True
    assert default_value("trl", "RLOOConfig", "per_device_train_batch_size", at(trl="0.11.4", transformers="4.46.3")) == 8


def test_a_class_that_is_gone_or_not_there_yet_has_the_nearest_defaults() -> None:
    assert default_value("trl", "PPOConfig", "gradient_checkpointing", at(trl="1.16.0")) is True
    assert default_value("trl", "GRPOConfig", "beta", at(trl="0.7.0")) == 0.04


def test_a_field_that_the_version_has_not_is_missing_and_unknown() -> None:
    old = at(transformers="4.30.2")
    assert default_value("transformers", "TrainingArguments", "use_liger_kernel", old) is MISSING
    assert not has_field("transformers", "TrainingArguments", "use_liger_kernel", old)
    assert not default_fact("transformers", "TrainingArguments", "use_liger_kernel", old).known
    assert has_field("transformers", "TrainingArguments", "use_liger_kernel", at(transformers="4.46.3"))
    assert default_value("transformers", "NoSuchClass", "bf16", at()) is MISSING


def test_a_default_says_where_it_was_read() -> None:
    fact = default_fact("trl", "SFTConfig", "max_length", at(trl="0.16.0"))
    assert (fact.value, fact.origin[0].note) == (1024, "trl 0.16.0 default of SFTConfig.max_length")
