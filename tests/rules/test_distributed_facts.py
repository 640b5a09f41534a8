"""Facts that only rules ask for, read where each library reads them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from memlint.extract import extract
from memlint.facts import TrainingRun

TRAIN = """\
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer
    args = SFTConfig("out", max_length=1024, {arguments})
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype="bfloat16")
    SFTTrainer(model=model, args=args, train_dataset=data).train()
"""


def run_of(folder: Path, lint: str, **files: str) -> TrainingRun:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(dedent(text))
    (run,) = extract(str(folder / lint)).runs
    return run


@pytest.mark.parametrize(
    ("option", "key", "value"),
    [
        ("zero3_init_flag: false", "parallel.zero3_init", False),
        ("zero3_save_16bit_model: true", "parallel.gather_weights_on_save", True),
        ("deepspeed_moe_layer_cls_names: MixtralSparseMoeBlock", "parallel.zero3_leaf_modules", True),
    ],
)
def test_accelerate_on_zero3(tmp_path: Path, option: str, key: str, value: Any) -> None:
    file = f"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n  {option}\n"
    assert run_of(tmp_path, "a.yaml", a__yaml=file).value(key) is value


@pytest.mark.parametrize(
    ("option", "key", "value"),
    [
        ("fsdp_state_dict_type: SHARDED_STATE_DICT", "parallel.state_dict_type", "sharded_state_dict"),
        ("fsdp_cpu_ram_efficient_loading: false", "parallel.cpu_ram_efficient_loading", False),
        ("fsdp_offload_params: false", "parallel.cpu_ram_efficient_loading", True),  # the launcher's default
    ],
)
def test_accelerate_on_fsdp(tmp_path: Path, option: str, key: str, value: Any) -> None:
    file = f"distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  {option}\n"
    assert run_of(tmp_path, "a.yaml", a__yaml=file).value(key) == value


def test_torchrun_does_not_take_fsdp_back(tmp_path: Path) -> None:
    """`fsdp=...` in the arguments shards whatever starts the processes (transformers 5.24.0 `training_args.py`)."""
    script = TRAIN.format(arguments='fsdp="full_shard auto_wrap"')
    run = run_of(tmp_path, "run.sh", train__py=script, run__sh="torchrun --nproc_per_node 4 train.py\n")
    assert (run.value("parallel.strategy"), run.value("parallel.gpus")) == ("fsdp2", 4)  # version 2 is the default since 5.12


@pytest.mark.parametrize(("arguments", "twice"), [("", True), ("gradient_checkpointing=False", False)])
def test_checkpointing_asked_for_twice(tmp_path: Path, arguments: str, twice: bool) -> None:
    """TRL switches its own on by default, which the Trainer refuses beside FSDP's (transformers 5.24.0 `trainer.py`)."""
    launcher = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_activation_checkpointing: true\n"
    run = run_of(
        tmp_path,
        "run.sh",
        train__py=TRAIN.format(arguments=arguments),
        a__yaml=launcher,
        run__sh="accelerate launch --config_file a.yaml train.py\n",
    )
    assert ("checkpointing-twice" in [problem.name for problem in run.problems]) is twice


@pytest.mark.parametrize(
    ("wrap", "unused", "view"),
    [("DDP(model)", False, False), ("DDP(model, find_unused_parameters=True, gradient_as_bucket_view=True)", True, True)],
)
def test_buckets_of_ddp(tmp_path: Path, wrap: str, unused: bool, view: bool) -> None:
    script = f"""\
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        from transformers import AutoModel
        model = AutoModel.from_pretrained("bert-base-uncased")
        model = {wrap}
        optimizer = torch.optim.AdamW(model.parameters())
        for batch in torch.utils.data.DataLoader(data, batch_size=2):
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
    """
    run = run_of(tmp_path, "train.py", train__py=script)
    assert run.value("parallel.find_unused_parameters") is unused
    assert run.value("parallel.gradient_as_bucket_view") is view


@pytest.mark.parametrize("first", ["args", "model"])
def test_the_order_that_zero3_needs(tmp_path: Path, first: str) -> None:
    lines = {
        "args": 'args = TrainingArguments("out", deepspeed="ds.json")',
        "model": 'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")',
    }
    order = [lines[first], *(text for name, text in lines.items() if name != first)]
    script = "\n".join(["from transformers import *", *order, "Trainer(model=model, args=args, train_dataset=data).train()", ""])
    run = run_of(tmp_path, "train.py", train__py=script, ds__json='{"zero_optimization": {"stage": 3}}')
    assert run.value("parallel.zero3_init") is (first == "args")
