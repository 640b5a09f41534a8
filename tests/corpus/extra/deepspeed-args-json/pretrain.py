import argparse

import deepspeed
from transformers import AutoModelForCausalLM

from data import make


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-name", type=str, default="gpt2")
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def main():
    args = get_args()
    deepspeed.init_distributed()
    model = AutoModelForCausalLM.from_pretrained(args.model_name)
    engine, opt, loader, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters(), training_data=make())
    for batch in loader:
        out = engine(**batch)
        engine.backward(out.loss)
        engine.step()


if __name__ == "__main__":
    main()
