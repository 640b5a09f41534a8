"""Record what real torch does on two CPU processes (gloo): `python -m tests.memory.record_sharded` (needs torch 2.13).

- FSDP2: the size of each all-gather and of each reduce-scatter's input in a step, and which units are whole between forward and backward;
- DDP that looks for unused parameters: the bytes that it clones;
- selective checkpointing under `torch.compile`: what a block keeps.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "data" / "sharded.json"
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, LENGTH, LAYERS, VOCABULARY = 256, 8, 2, 32, 896, 128, 3, 512


def model() -> Any:
    """Three Llama blocks between an embedding and a head."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        vocab_size=VOCABULARY, tie_word_embeddings=False, max_position_embeddings=LENGTH, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def fsdp2(apart: bool = False, **root: bool) -> dict[str, Any]:
    """float32 shards, bfloat16 computation, float32 reduction. What comes last is not resharded after forward: the last block, or the
    head with the final norm where these and the embedding are units of their own (`apart`). `root` is what the root is told beside."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as groups

    events: list[tuple[str, int]] = []
    gather, reduce = groups.foreach_all_gather, groups.foreach_reduce

    def gathering(params: Any, *rest: Any, **more: Any) -> Any:
        result = gather(params, *rest, **more)
        events.append(("gather", result.all_gather_output.nbytes))
        return result

    def reducing(params: Any, grads: Any, *rest: Any, **more: Any) -> Any:
        result = reduce(params, grads, *rest, **more)
        events.append(("reduce", result[0].nbytes))
        return result

    groups.foreach_all_gather, groups.foreach_reduce = gathering, reducing
    net = model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if apart:
        fully_shard(net.model.embed_tokens, mp_policy=policy)
    for index, block in enumerate(net.model.layers):
        fully_shard(block, mp_policy=policy, reshard_after_forward=apart or index < LAYERS - 1)
    if apart:
        fully_shard([net.model.norm, net.lm_head], mp_policy=policy, reshard_after_forward=False)
    fully_shard(net, mp_policy=policy, **root)
    ids = torch.randint(0, VOCABULARY, (1, LENGTH))
    loss = net(input_ids=ids, labels=ids).loss
    named = [("embedding", net.model.embed_tokens), ("head", net.lm_head)] if apart else [("root", net)]
    named += [(f"block {index}", block) for index, block in enumerate(net.model.layers)]
    whole = {name: unit._get_fsdp_state()._fsdp_param_group.is_unsharded for name, unit in named}
    loss.backward()
    groups.foreach_all_gather, groups.foreach_reduce = gather, reduce
    grads = {str(p.grad.dtype) for p in net.parameters()}
    return {"events": events, "whole_after_forward": whole, "gradient_dtypes": sorted(grads)}


def ddp() -> dict[str, Any]:
    """Bytes of the outputs that are not the model's own tensors any more."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    found = {}
    for unused in (False, True):
        own: list[Any] = []
        net = model()
        net.register_forward_hook(lambda module, inputs, output, own=own: own.append(output.logits))
        wrapped = DistributedDataParallel(net, find_unused_parameters=unused)
        ids = torch.randint(0, VOCABULARY, (1, LENGTH))
        output = wrapped(input_ids=ids, labels=ids)
        cloned = output.logits.data_ptr() != own[0].data_ptr()
        found["find_unused" if unused else "plain"] = output.logits.nbytes if cloned else 0
        output.loss.backward()
    return found


def selective() -> list[int]:
    """Bytes of each tensor that a compiled block keeps beside its weights, every second matrix product and attention saved."""
    import torch
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    products = torch.ops.aten.mm.default
    saved = {products, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default}

    def contexts() -> Any:
        counts: dict[bool, int] = defaultdict(int)

        def policy(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
            counts[ctx.is_recompute] += func == products
            keeps = func in saved and not (func == products and counts[ctx.is_recompute] % 2 == 0)
            return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    net = model().to(torch.bfloat16)
    block, rotary = net.model.layers[0], net.model.rotary_emb
    x = torch.randn(1, LENGTH, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    tables = rotary(x, torch.arange(LENGTH)[None])
    compiled = torch.compile(
        checkpoint_wrapper(block, context_fn=contexts, preserve_rng_state=False), backend="aot_eager_decomp_partition"
    )
    known = {p.data_ptr() for p in block.parameters()} | {t.data_ptr() for t in tables}
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        if tensor.data_ptr() not in known:
            kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = compiled(x, position_embeddings=tables)
    del result
    return sorted(kept.values(), reverse=True)


def worker(rank: int, port: str) -> None:
    """One of two processes; the first writes the record."""
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    found = {"torch": torch.__version__, "ddp": ddp(), "fsdp2": fsdp2(), "fsdp2_apart": fsdp2(apart=True)}
    found["fsdp2_root_resharded"] = fsdp2(reshard_after_forward=True)
    if rank == 0:
        found["selective"] = selective()
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Start both processes."""
    import torch.multiprocessing as mp

    mp.spawn(worker, args=(sys.argv[1] if len(sys.argv) > 1 else "29511",), nprocs=2)


if __name__ == "__main__":
    main()
