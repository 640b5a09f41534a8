"""Every route from a name to an architecture, and that none claims more than it knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memlint.models import catalogue, lookup, table
from memlint.models.describe import describe, matching

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent

# Totals printed by the hub for the safetensors of each repository, or by the model's own report; equal to the count of a
# transformers model built on the meta device.
PUBLISHED = {
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "meta-llama/Meta-Llama-3-8B": 8_030_261_248,
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "microsoft/phi-2": 2_779_683_840,
    "google/gemma-2b": 2_506_172_416,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai-community/gpt2": 124_439_808,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "mistralai/Codestral-22B-v0.1": 22_247_282_688,
    "OpenGVLab/InternVL3-8B": 7_944_373_760,
    "tiiuae/Falcon-H1-0.5B-Base": 521_411_104,
}


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Hugging Face cache of the machine that runs the tests must not answer."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("HUGGINGFACE_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


@pytest.mark.parametrize(("model_id", "params"), PUBLISHED.items())
def test_parameters_are_the_published_ones(model_id: str, params: int) -> None:
    found = lookup(model_id)
    assert found.exact
    assert found.architecture is not None
    assert found.architecture.params == params
    assert found.architecture.name == model_id


def test_the_survey_resolves() -> None:
    """model_ids.tsv: model ids in training scripts and configs of public repositories, with the files that mention them."""
    rows = [line.split("\t") for line in (HERE / "model_ids.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    weights = {row[0]: int(row[1]) for row in rows}
    exact = sum(weight for model_id, weight in weights.items() if lookup(model_id).exact)
    assert exact / sum(weights.values()) >= 0.95
    for model_id in weights:
        found = lookup(model_id)
        if found.architecture is None:
            assert found.tell, model_id
        elif not found.exact:
            assert not found.architecture.exact, model_id
            assert found.tell or found.suggestions, model_id


# Ids that people use for private or unrelated things: a shape must not be claimed for them.
UNKNOWABLE = [
    "my-model",
    "./output",
    "/model",
    "model",
    "outputs",
    "checkpoint-500",
    "org/private-model",
    "stevhliu/my_awesome_model",
    "a/b/c",
    "~",
    "..",
    "\0",
    "x" * 5000,
    "#",
    "/",
    "org/\t\n",
]


@pytest.mark.parametrize("model_id", UNKNOWABLE)
def test_what_cannot_be_known_is_unknown(model_id: str) -> None:
    found = lookup(model_id)
    assert found.architecture is None
    assert not found.exact
    assert len(found.tell) == 3


def test_nothing_named() -> None:
    assert lookup(None).how == lookup("  ").how == "nothing names the model"


@pytest.mark.parametrize(
    ("written", "same_as"),
    [
        ("gpt2", "openai-community/gpt2"),
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("QWEN/qwen2.5-7b", "Qwen/Qwen2.5-7B"),
        ("unsloth/llama-3-8b-bnb-4bit", "meta-llama/Meta-Llama-3-8B"),
        ("TheBloke/Mistral-7B-v0.1-GPTQ", "mistralai/Mistral-7B-v0.1"),
        ("someone/Qwen2.5-7B-AWQ", "Qwen/Qwen2.5-7B"),
        ("AI-ModelScope/Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.1"),
        ("llama2_7b", "meta-llama/Llama-2-7b-hf"),
        ("/tmp/Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"),
        ("/tmp/Llama-2-7b-hf/", "meta-llama/Llama-2-7b-hf"),
        ("checkpoints/meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"),
        ("./models/Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
        ("C:\\models\\Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
        ("/home/me/.cache/huggingface/hub/models--Qwen--Qwen2.5-7B/snapshots/abc", "Qwen/Qwen2.5-7B"),
    ],
)
def test_spellings_of_one_model(written: str, same_as: str) -> None:
    found, canonical = lookup(written), lookup(same_as)
    assert found.exact
    assert found.architecture is not None
    assert canonical.architecture is not None
    assert found.architecture.params == canonical.architecture.params
    assert found.architecture.config == canonical.architecture.config


def test_a_training_output_is_not_exact() -> None:
    found = lookup("out/Llama-2-7b-hf/checkpoint-500")
    assert found.architecture is not None
    assert (found.exact, found.architecture.exact, found.architecture.layers) == (False, False, 32)


def test_a_name_of_two_models_is_not_exact() -> None:
    found = lookup("phi-4")  # microsoft/phi-4 and its copy in Llama's layout, unsloth/phi-4
    assert not found.exact
    assert set(found.suggestions) == {"microsoft/phi-4", "unsloth/phi-4"}


# Totals that the hub showed for the safetensors of repositories which bear the name of another owner's model (llmfit 1.1.17). The
# first two differ from the model so called: a fine-tune of 1.4 billion, and a text-only copy.
NAMESAKES = {
    "tiyuvta/Qwen3.8-27B-DSpark-Agentic": 1_359_284_737,
    "lukey03/Qwen3.5-9B-abliterated": 8_953_803_264,
    "unsloth/LFM2-350M": 354_483_968,
    "inception42/Jais-2-8B-Chat": 8_090_401_280,
    "FriendliAI/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31_577_937_344,
    "AI-ModelScope/Mistral-7B-v0.1": 7_241_732_096,
    "LLM-Research/Meta-Llama-3.1-8B-Instruct": 8_030_261_248,
}


@pytest.mark.parametrize(("model_id", "total"), NAMESAKES.items())
def test_a_namesake_of_another_owner_is_exact_only_where_it_is_right(model_id: str, total: int) -> None:
    found = lookup(model_id)
    assert found.architecture is not None
    assert found.exact == (found.architecture.params == total)


def test_a_guess_agrees_in_family_and_size_and_says_so() -> None:
    found = lookup("somebody/qwen3-4b-sft-of-mine")
    assert found.how == "guess from the name: family and size of Qwen/Qwen3-4B"
    assert found.architecture is not None
    assert not found.exact
    assert not found.architecture.exact
    assert found.architecture.params is None
    assert found.tell


def test_a_misspelt_id_gets_suggestions() -> None:
    assert "bigcode/starcoder2-7b" in lookup("bigcode/starcodr2").suggestions


def config_at(directory: Path, **config: object) -> None:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


def test_a_local_directory_comes_before_the_catalogue(tmp_path: Path) -> None:
    config_at(tmp_path / "Qwen" / "Qwen2.5-7B", model_type="llama", num_hidden_layers=3)
    found = lookup("Qwen/Qwen2.5-7B", base=str(tmp_path))
    assert found.how == "config.json in Qwen/Qwen2.5-7B"
    assert found.architecture is not None
    assert (found.architecture.layers, found.architecture.params) == (3, None)


def test_a_local_copy_in_the_catalogue_s_shape_has_its_counts(tmp_path: Path) -> None:
    row = catalogue.find("Qwen/Qwen2.5-7B")
    assert row is not None
    config_at(tmp_path / "Qwen" / "Qwen2.5-7B", **row.row["config"])
    found = lookup("Qwen/Qwen2.5-7B", base=str(tmp_path))
    assert found.architecture is not None
    assert found.architecture.params == 7_615_616_512
    assert found.architecture.linears


def test_an_adapter_directory_leads_to_its_base(tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "gpt2"}', encoding="utf-8")
    found = lookup("adapter", base=str(tmp_path))
    assert found.how.startswith("base of the adapter in adapter: catalogue")
    assert found.architecture is not None
    assert found.architecture.layers == 12


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"a": 1}', "[" * 100_000, "\udcff"])
def test_a_broken_config_json_is_passed_over(tmp_path: Path, content: str) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(content, encoding="utf-8", errors="surrogatepass")
    assert lookup("./m", base=str(tmp_path)).architecture is None


def test_the_hugging_face_cache(tmp_path: Path) -> None:
    snapshots = tmp_path / "hf" / "hub" / "models--org--secret" / "snapshots"
    config_at(snapshots / "bbb", model_type="llama", num_hidden_layers=2)
    config_at(snapshots / "aaa", model_type="llama", num_hidden_layers=5)
    (snapshots.parent / "refs").mkdir()
    (snapshots.parent / "refs" / "main").write_text("aaa\n", encoding="ascii")
    found = lookup("org/secret")
    assert found.how == "Hugging Face cache"
    assert found.architecture is not None
    assert found.architecture.layers == 5


def test_overrides_name_a_path_or_another_id(tmp_path: Path) -> None:
    config_at(tmp_path / "shapes" / "mine", model_type="gpt2", n_layer=3)
    by_path = lookup("org/mine", base=str(tmp_path), overrides={"org/mine": "shapes/mine"})
    by_id = lookup("org/mine", base=str(tmp_path), overrides={"org/mine": "other", "other": "gpt2"})
    assert by_path.architecture is not None
    assert by_id.architecture is not None
    assert (by_path.architecture.layers, by_id.architecture.layers) == (3, 12)
    assert by_id.how.startswith("[tool.memlint.models] org/mine -> other: [tool.memlint.models] other -> gpt2: catalogue")


def test_overrides_stand_above_the_disk_and_say_when_it_disagrees(tmp_path: Path) -> None:
    """Somebody wrote them for memlint, and every machine has them; a directory or a cache is there on one machine."""
    config_at(tmp_path / "mine", model_type="gpt2", n_layer=3)
    config_at(tmp_path / "hf" / "hub" / "models--org--x" / "snapshots" / "aaa", model_type="gpt2", n_layer=5)
    above_directory = lookup("mine", base=str(tmp_path), overrides={"mine": "gpt2"})
    above_cache = lookup("org/x", base=str(tmp_path), overrides={"org/x": "gpt2"})
    assert above_directory.architecture is not None
    assert above_cache.architecture is not None
    assert (above_directory.architecture.layers, above_cache.architecture.layers) == (12, 12)
    assert above_directory.how.endswith("(config.json in mine says otherwise)")
    assert above_cache.how.endswith("(Hugging Face cache says otherwise)")
    config_at(tmp_path / "same", model_type="gpt2", n_layer=12)
    assert "otherwise" not in lookup("same", base=str(tmp_path), overrides={"same": "gpt2"}).how


def test_an_override_that_leads_nowhere_is_unknown() -> None:
    found = lookup("org/mine", overrides={"org/mine": "configs/gone.json"})
    assert found.architecture is None
    assert found.how == "[tool.memlint.models] org/mine -> configs/gone.json: unknown model"


def test_overrides_in_a_circle_end() -> None:
    assert lookup("a/x", overrides={"a/x": "b/x", "b/x": "a/x"}).architecture is None


def test_an_inline_configuration_is_the_whole_model() -> None:
    found = lookup(None, config={"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 24})
    assert (found.how, found.exact) == ("inline config", True)
    assert found.architecture is not None
    assert (found.architecture.layers, found.architecture.params) == (24, None)


def test_an_inline_configuration_changes_a_named_model() -> None:
    found = lookup("meta-llama/Llama-2-7b-hf", config={"num_hidden_layers": 2})
    assert found.architecture is not None
    assert (found.architecture.layers, found.architecture.hidden_size, found.architecture.params) == (2, 4096, None)
    kept = lookup("meta-llama/Llama-2-7b-hf", config={"rope_theta": 500000})
    assert kept.architecture is not None
    assert kept.architecture.params == 6_738_415_616


def test_an_inline_configuration_of_nothing_known_is_unknown() -> None:
    assert lookup(None, config={"learning_rate": 1}).architecture is None


def test_every_alias_leads_to_an_entry_and_every_name_to_ids() -> None:
    keys = []
    for key, value in table.items(catalogue.FILE):
        keys.append(key.encode())
        parsed = json.loads(value)
        if key.startswith("/"):
            assert parsed
            assert all(catalogue.find(model_id) for model_id in parsed), key
        elif isinstance(parsed, list):
            assert isinstance(json.loads(table.get(catalogue.FILE, parsed[0].lower()) or "0"), dict), key
        else:
            assert parsed["id"].lower() == key
            assert parsed["config"]["model_type"]
    assert keys == sorted(set(keys))


def test_verified_entries_state_what_was_compared() -> None:
    for model_id in catalogue.ids():
        found = catalogue.find(model_id)
        assert found is not None
        if found.row["verified"]:
            assert found.row["check"], model_id
        assert found.row["source"], model_id


def test_linears_add_up_to_less_than_the_parameters() -> None:
    """With embeddings, norms and biases the whole is more; tied heads are counted once."""
    for model_id in catalogue.ids():
        found = catalogue.find(model_id)
        assert found is not None
        architecture = catalogue.architecture(found.row)
        if architecture.params and architecture.linears:
            heads = architecture.tied
            size = sum(i * o * n for name, i, o, n in architecture.linears if not (heads and name == "lm_head"))
            assert size <= architecture.params, model_id


def test_describe_shows_the_arithmetic() -> None:
    lines = describe(lookup("Qwen/Qwen2.5-7B"))
    assert lines[0] == "Qwen/Qwen2.5-7B"
    terms = [int(line.split()[0].replace(",", "")) for line in lines if line.startswith(" " * 12)]
    assert sum(terms) == 7_615_616_512


@pytest.mark.parametrize(
    ("model_id", "params"),
    [
        ("Qwen/Qwen3-30B-A3B", 30_532_122_624),
        ("openai-community/gpt2", 124_439_808),
        ("FacebookAI/roberta-base", 124_697_433),
        ("google/gemma-2-2b", 2_614_341_888),
    ],
)
def test_the_terms_add_up_to_the_published_total(model_id: str, params: int) -> None:
    """Experts, tied heads and transposed Linears: each weight once, and what is left is small."""
    terms = [int(line.split()[0].replace(",", "")) for line in describe(lookup(model_id)) if line.startswith(" " * 12)]
    assert sum(terms) == params
    assert terms[-1] < params / 100


def test_describe_an_unknown_model_says_how_to_tell() -> None:
    lines = describe(lookup("org/private-model"))
    assert lines[0] == "unknown model"
    assert len(lines) == 4
    assert "memlint models add org/private-model" in lines[1]
    assert "models add" not in " ".join(describe(lookup("./private-model")))


def test_matching_lists_ids() -> None:
    assert "mistralai/Codestral-22B-v0.1" in matching("CODESTRAL")
    assert len(matching("")) > 1000


def test_a_cold_lookup_takes_a_few_milliseconds() -> None:
    """In a fresh process, the data file cold in the process; the bound of the project is 5 ms on a quiet machine."""
    code = (
        "import time; from memlint.models import lookup; t = time.perf_counter(); lookup('unsloth/llama-3-8b-bnb-4bit');"
        "print((time.perf_counter() - t) * 1e3)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True) for _ in range(5)]
    assert min(float(run.stdout) for run in runs) < 5


def test_the_data_is_small_enough_for_the_wheel() -> None:
    import zlib

    packed = sum(len(zlib.compress(file.read_bytes())) for file in Path(table.DATA).iterdir())
    assert packed < 600_000


def test_rebuilding_from_the_repository_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "catalogue.tsv"
    code = (
        "import sys; from pathlib import Path; import build_catalogue;"
        "build_catalogue.main([Path(a) for a in sys.argv[2:]], Path(sys.argv[1]))"
    )
    arguments = [str(target), "memlint/models/data/catalogue.tsv", "tools/sources/models"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, env=env, check=True, capture_output=True)
    assert target.read_bytes() == (ROOT / "memlint/models/data/catalogue.tsv").read_bytes()
