"""Launches of training scripts that are told by their own flags: Megatron-LM, torchtitan, sd-scripts, Megatron-Bridge, NeMo, Unsloth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlint.extract import Project
from memlint.launch import read_launch
from memlint.source import Kind, Source

FILES = {
    "titan.toml": '[job]\ndump_folder = "out"\n[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
    '[activation_checkpoint]\nmode = "full"\n',
    "lora.toml": '[model]\npretrained_model_name_or_path = "org/sdxl"\n[train]\nnetwork_module = "networks.lora"\ntrain_batch_size = 2\n'
    'mixed_precision = "bf16"\nmax_train_steps = 10\n',
    "studio.yaml": "model: org/q\ntraining:\n  training_type: lora\n  max_seq_length: 2048\n  batch_size: 2\nlora:\n  lora_r: 8\n",
    "conf/gpt.yaml": "trainer: {devices: 8, num_nodes: 2, precision: bf16, max_steps: 10}\nmodel:\n  micro_batch_size: 4\n"
    "  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 1\n  megatron_amp_O2: true\n  num_layers: 4\n"
    "  hidden_size: 256\n  num_attention_heads: 4\n  encoder_seq_length: 512\n  optim: {name: distributed_fused_adam}\n",
    "bridge.yaml": "train: {micro_batch_size: 1, global_batch_size: 8}\nmodel: {seq_length: 4096, tensor_model_parallel_size: 2}\n"
    "optimizer: {lr: 1e-4}\ndataset: {seq_length: 4096}\n",
}
GPT = ("--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 --micro-batch-size 4 --bf16 "
       "--tokenizer-type GPT2BPETokenizer")  # fmt: skip

CASES: list[tuple[str, dict[str, Any]]] = [
    (f"torchrun --nproc_per_node 8 pretrain_gpt.py {GPT} --tensor-model-parallel-size 2 --sequence-parallel "
     "--use-distributed-optimizer --recompute-activations",
     {"parallel.strategy": "megatron", "parallel.gpus": 8, "parallel.tensor": 2, "parallel.sequence_parallel": True,
      "parallel.distributed_optimizer": True, "checkpointing.mode": "selective_core_attention", "precision": "bf16-true",
      "optimizer.master_weights": True, "optimizer.grad_dtype": "float32", "batch.micro_batch_size": 4}),
    (f"torchrun --nproc_per_node 1 Megatron-LM/pretrain_gpt.py {GPT} --sequence-parallel",
     {"parallel.sequence_parallel": False, "checkpointing.enabled": False, "framework.name": "megatron"}),
    ("torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file titan.toml --training.local_batch_size 2 "
     "--parallelism.tensor_parallel_degree 2",
     {"parallel.gpus": 8, "parallel.strategy": "fsdp2", "parallel.tensor": 2, "batch.micro_batch_size": 2,
      "batch.sequence_length": 8192, "checkpointing.mode": "full", "model.id": "meta-llama/Llama-3.1-8B"}),
    ("torchrun --nproc_per_node=4 train.py --job.config_file=titan.toml", {"parallel.gpus": 4, "framework.name": "torchtitan"}),
    ("accelerate launch --num_processes 1 sdxl_train_network.py --config_file lora --network_dim 32 --gradient_checkpointing",
     {"adapter.r": 32, "checkpointing.enabled": True, "batch.micro_batch_size": 2, "model.dtype": "bfloat16"}),
    ("python sd-scripts/flux_train.py --pretrained_model_name_or_path flux1-dev.safetensors --train_data_dir d "
     "--mixed_precision bf16 --full_bf16 --fused_backward_pass --optimizer_type adafactor",
     {"precision": "bf16-true", "model.dtype": "bfloat16", "optimizer.in_backward": True, "optimizer.name": "adafactor",
      "adapter.method": "none", "objective": "diffusion"}),
    ("torchrun --nproc_per_node 8 scripts/training/run_recipe.py --recipe llama32_1b_pretrain_config "
     "train.micro_batch_size=1 model.tensor_model_parallel_size=2",
     {"framework.name": "megatron_bridge", "parallel.tensor": 2, "parallel.gpus": 8, "batch.micro_batch_size": 1}),
    ("torchrun --nproc_per_node 2 tutorials/pretrain_llama.py --config-file bridge.yaml model.tensor_model_parallel_size=1",
     {"framework.name": "megatron_bridge", "parallel.tensor": 1, "batch.sequence_length": 4096}),
    ("python examples/megatron_gpt_pretraining.py --config-path=../conf --config-name=gpt model.micro_batch_size=2",
     {"framework.name": "nemo", "batch.micro_batch_size": 2, "parallel.gpus": 8, "parallel.nodes": 2,
      "precision": "bf16-true", "parallel.distributed_optimizer": True}),
    ("unsloth train --config studio.yaml --batch-size 4 --lora-r 16",
     {"framework.name": "unsloth", "batch.micro_batch_size": 4, "adapter.r": 16, "model.id": "org/q"}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), CASES, ids=[line[:60] for line, _ in CASES])
def test_a_launch_is_read(tmp_path: Path, line: str, expected: dict[str, Any]) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    path = tmp_path / "train.sh"
    path.write_text(line + "\n")
    (run,) = read_launch(Source(str(path), Kind.SHELL, line + "\n"), Project.around(str(path))).runs
    assert {key: run.value(key) for key in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --config_file data.toml",
        "python fine_tune.py --model_name_or_path org/a",
        "python pretrain_gpt.py --help",
        "python train_network.py --pretrained_model_name_or_path org/a",
    ],
)
def test_others_are_not_taken_for_them(tmp_path: Path, line: str) -> None:
    path = tmp_path / "train.sh"
    path.write_text(line + "\n")
    assert read_launch(Source(str(path), Kind.SHELL, line + "\n"), Project.around(str(path))).runs == ()


def test_the_flags_of_fsdp_qlora_win_over_what_its_script_shows(tmp_path: Path) -> None:
    """Its `main` hands all flags on as `fsdp_qlora(**locals())`; read as a loop, the script shows none of them (05ed9f2)."""
    (tmp_path / "train.py").write_text(
        "import torch\nfrom fastcore.script import call_parse\nfrom transformers import AutoModelForCausalLM\n"
        "def fsdp_main(local_rank, world_size, args):\n"
        "    model = AutoModelForCausalLM.from_pretrained(args['model_name'])\n"
        "    optimizer = torch.optim.AdamW(model.parameters(), lr=args['lr'])\n"
        "    for batch in args['data']:\n        model(**batch).loss.backward()\n        optimizer.step()\n"
        "def fsdp_qlora(**kwargs):\n    torch.multiprocessing.spawn(fsdp_main, args=(2, kwargs), nprocs=2)\n"
        "@call_parse()\ndef main(model_name: str = 'a/b', context_length: int = 512, train_type: str = 'qlora', batch_size: int = 1,\n"
        "         lr: float = 1e-5):\n    fsdp_qlora(**locals())\n"
    )
    line = "python train.py --train_type lora --model_name org/a --batch_size 4 --context_length 256 --use_cpu_offload False\n"
    path = tmp_path / "train.sh"
    path.write_text(line)
    (run,) = read_launch(Source(str(path), Kind.SHELL, line), Project.around(str(path))).runs
    assert run.dialect == "fsdp_qlora"
    assert run.value("batch.sequence_length") == 256
    assert run.value("batch.micro_batch_size") == 4
    assert run.value("adapter.method") == "lora"
    assert run.value("parallel.offload_params") == "none"
