import argparse

import deepspeed
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


def get_train_ds_config(offload, stage=2):
    return {
        "train_batch_size": 32,
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu" if offload else "none"}},
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--per_device_train_batch_size", type=int, default=16)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--zero_stage", type=int, default=0)
    parser.add_argument("--offload", action="store_true")
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    deepspeed.init_distributed()
    ds_config = get_train_ds_config(offload=args.offload, stage=args.zero_stage)
    ds_config["train_micro_batch_size_per_gpu"] = args.per_device_train_batch_size
    ds_config["train_batch_size"] = (
        args.per_device_train_batch_size * torch.distributed.get_world_size() * args.gradient_accumulation_steps
    )
    model = AutoModelForCausalLM.from_pretrained("facebook/opt-1.3b")
    loader = DataLoader(train_set, batch_size=args.per_device_train_batch_size)
    optimizer = deepspeed.ops.adam.FusedAdam(model.parameters(), lr=1e-5)
    model, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, args=args, config=ds_config)
    for batch in loader:
        loss = model(**batch, use_cache=False).loss
        model.backward(loss)
        model.step()


if __name__ == "__main__":
    main()
