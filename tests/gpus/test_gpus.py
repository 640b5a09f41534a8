"""Cards by name. Capacities are totals in public out-of-memory messages of torch (tools/sources/gpus.json)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memlint.gpus import all_gpus, common_gpus, find, suggest

ROOT = Path(__file__).resolve().parents[2]
GIB = 1024**3

# How people write their card -> the card. The first block are the distinct spellings of the measured corpus.
WRITTEN = {
    "NVIDIA A100 80GB": "NVIDIA A100 80GB",
    "NVIDIA A10G": "NVIDIA A10G",
    "NVIDIA A10G 24GB": "NVIDIA A10G",
    "NVIDIA A100-SXM4-40GB": "NVIDIA A100 40GB",
    "NVIDIA A100-SXM4-80GB": "NVIDIA A100 80GB",
    "NVIDIA A100 40GB": "NVIDIA A100 40GB",
    "NVIDIA GeForce RTX 3090": "GeForce RTX 3090",
    "RTX 3090 24GB": "GeForce RTX 3090",
    "RTX A5000": "NVIDIA RTX A5000",
    "RTX 6000 Ada (A6000 Ada)": "NVIDIA RTX 6000 Ada",
    "RTX 6000 Ada 48GB": "NVIDIA RTX 6000 Ada",
    "H100 80GB SXM": "NVIDIA H100 80GB SXM",
    "NVIDIA H100": "NVIDIA H100 80GB SXM",
    "NVIDIA H100 96GB HBM2e": "NVIDIA GH200 96GB",
    "NVIDIA H200 141GB": "NVIDIA H200",
    "NVIDIA V100 16GB": "Tesla V100 16GB",
    "NVIDIA V100 32GB": "Tesla V100 32GB",
    "NVIDIA T4 16GB": "Tesla T4",
    "Titan RTX 24GB": "NVIDIA TITAN RTX",
    "RTX 4070 Ti SUPER": "GeForce RTX 4070 Ti SUPER",
    "RTX 4090": "GeForce RTX 4090",
    "NVIDIA B200": "NVIDIA B200",
    "NVIDIA L40S": "NVIDIA L40S",
    "a100_80gb": "NVIDIA A100 80GB",
    "a100_40gb": "NVIDIA A100 40GB",
    "h100_80gb": "NVIDIA H100 80GB SXM",
    "A100 80GB": "NVIDIA A100 80GB",
    # nvidia-smi, torch.cuda.get_device_name, Slurm --gres, SkyPilot, cloud names
    "NVIDIA H100 80GB HBM3": "NVIDIA H100 80GB SXM",
    "NVIDIA A100 80GB PCIe": "NVIDIA A100 80GB",
    "Tesla V100-SXM2-32GB": "Tesla V100 32GB",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "NVIDIA RTX PRO 6000 Blackwell",
    "NVIDIA RTX 6000 Ada Generation": "NVIDIA RTX 6000 Ada",
    "gpu:a100:2": "NVIDIA A100 40GB",
    "H100:8": "NVIDIA H100 80GB SXM",
    "8x A100-80GB": "NVIDIA A100 80GB",
    "2xT4": "Tesla T4",
    "Colab T4": "Tesla T4",
    "Kaggle P100": "Tesla P100 16GB",
    # short names on a command line
    "a100-80gb": "NVIDIA A100 80GB",
    "A100-40G": "NVIDIA A100 40GB",
    "rtx4090": "GeForce RTX 4090",
    "4090": "GeForce RTX 4090",
    "rtx_3090": "GeForce RTX 3090",
    "3080 Ti": "GeForce RTX 3080 Ti",
    "RTX 4070Ti": "GeForce RTX 4070 Ti",
    "A6000": "NVIDIA RTX A6000",
    "a2000": "NVIDIA RTX A2000 12GB",
    "t4": "Tesla T4",
    "l4": "NVIDIA L4",
    "L40": "NVIDIA L40",
    "Quadro RTX 8000": "Quadro RTX 8000",
    "mi300x": "AMD Instinct MI300X",
    "MI250X": "AMD Instinct MI250/MI250X (per GCD)",
}


@pytest.mark.parametrize(("text", "name"), WRITTEN.items())
def test_a_name_as_people_write_it_finds_its_card(text: str, name: str) -> None:
    found = find(text)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "text", ["", "   ", "not stated", "none", "auto", "cuda", "gpu", "rtx", "foo", "gtx 1080", "-1", "()" * 500]
)
def test_what_names_no_card_finds_none(text: str) -> None:
    assert find(text) is None


def test_a_size_that_the_card_does_not_come_in_finds_none() -> None:
    assert find("A100 60GB") is None


# (card, the GiB total of a public out-of-memory message): the planned capacity never exceeds what a card was seen to have.
SEEN = [
    ("T4", 14.56),  # github.com/Zheng-Chong/CatVTON issue 133
    ("RTX 5090", 31.37),  # github.com/Wan-Video/Wan2.1 issue 465
    ("L40S", 44.42),  # github.com/stepfun-ai/Step-Video-T2V issue 8
    ("A100-40GB", 39.49),  # github.com/awslabs/keys_values issue 92
    ("V100-32GB", 31.74),  # github.com/liucongg/ChatGLM-Finetuning issue 73
    ("B200", 178.35),  # github.com/pytorch/ao pull request 4002
    ("RTX 4090", 23.65),
]


@pytest.mark.parametrize(("text", "total"), SEEN)
def test_capacity_is_what_torch_reports_and_not_the_nameplate(text: str, total: float) -> None:
    gpu = find(text)
    assert gpu is not None
    assert total * 0.99 * GIB < gpu.capacity_bytes <= (total + 0.005) * GIB
    assert gpu.capacity_bytes < gpu.memory_gb * GIB


@pytest.mark.parametrize(
    ("text", "smallest"),
    [("24GB", 21.98), ("24 gb", 21.98), ("80g", 79.1), ("16GB", 14.56), ("48 GB class", 43.88)],
)
def test_a_size_is_the_least_capacity_sold_under_it(text: str, smallest: float) -> None:
    gpu = find(text)
    assert gpu is not None
    assert gpu.capacity_bytes == int(smallest * GIB)
    assert gpu.name.endswith("GB card")
    assert gpu.capacity_bytes == min(other.capacity_bytes for other in all_gpus() if other.memory_gb == gpu.memory_gb)


def test_a_size_that_no_card_has_is_scaled_and_says_so() -> None:
    gpu = find("100GB")
    assert gpu is not None
    assert gpu.confidence == "low"
    assert 95 * GIB < gpu.capacity_bytes < 100 * GIB


# MiB in use beyond the allocator's, per process: sources in tools/sources/gpus_more.json.
@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("T4", 135),
        ("T4", 140),
        ("RTX 3080", 255),
        ("L4", 219),
        ("A100", 414),
        ("A100", 501),
        ("H100", 439),
        ("L40S", 420),
        ("5090", 595),
    ],
)
def test_contexts_seen_in_public_logs_lie_in_the_interval(text: str, mib: int) -> None:
    gpu = find(text)
    assert gpu is not None
    assert gpu.context_low <= mib * 1024**2 <= gpu.context_high
    assert gpu.context_low < gpu.context_bytes < gpu.context_high


@pytest.mark.parametrize(
    ("text", "capability", "bf16"),
    [
        ("V100", (7, 0), False),
        ("T4", (7, 5), False),
        ("A100", (8, 0), True),
        ("3090", (8, 6), True),
        ("4090", (8, 9), True),
        ("H100", (9, 0), True),
        ("B200", (10, 0), True),
        ("5090", (12, 0), True),
        ("MI300X", (9, 4), True),
    ],
)
def test_compute_capability_and_bf16(text: str, capability: tuple[int, int], bf16: bool) -> None:
    gpu = find(text)
    assert gpu is not None
    assert (gpu.compute_capability, gpu.bf16) == (capability, bf16)


def test_every_card_finds_itself_by_its_name() -> None:
    for gpu in all_gpus():
        found = find(gpu.name)
        assert found is not None, gpu.name
        assert (found.capacity_bytes, found.memory_gb) == (gpu.capacity_bytes, gpu.memory_gb), gpu.name


def test_cards_are_ordered_and_the_common_ones_are_among_them() -> None:
    capacities = [gpu.capacity_bytes for gpu in all_gpus()]
    assert capacities == sorted(capacities)
    assert {"Tesla T4", "GeForce RTX 4090", "NVIDIA A100 80GB"} <= {gpu.name for gpu in common_gpus()}
    assert 8 <= len(common_gpus()) <= 12


def test_a_misspelt_card_gets_suggestions() -> None:
    assert "GeForce RTX 4090" in suggest("rtx409")
    assert "NVIDIA A100 40GB" in suggest("a1000")
    assert suggest("") == ()


def test_importing_reads_no_data() -> None:
    code = "import memlint.gpus.gpu as g, memlint.gpus, memlint.models; print(g.all_gpus.cache_info().currsize)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "0"


def test_the_data_file_is_what_the_tool_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import build_gpus
    finally:
        sys.path.pop(0)
    monkeypatch.setattr(build_gpus, "TARGET", tmp_path / "gpus.json")
    build_gpus.main()
    assert json.loads((tmp_path / "gpus.json").read_text()) == json.loads((ROOT / "memlint/gpus/data/gpus.json").read_text())
