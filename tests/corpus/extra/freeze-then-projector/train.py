from dataclasses import dataclass, field

import torch
import transformers
from transformers import LlamaForCausalLM, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="meta-llama/Llama-2-7b-hf")
    tune_mm_mlp_adapter: bool = field(default=False)
    freeze_backbone: bool = field(default=False)


def train():
    parser = transformers.HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses()
    model = LlamaForCausalLM.from_pretrained(model_args.model_name_or_path, torch_dtype=torch.bfloat16)
    if model_args.freeze_backbone:
        model.model.requires_grad_(False)
    model.get_model().initialize_vision_modules(model_args=model_args)
    if model_args.tune_mm_mlp_adapter:
        model.requires_grad_(False)
        for p in model.get_model().mm_projector.parameters():
            p.requires_grad = True
    Trainer(model=model, args=training_args, train_dataset=build(model_args)).train()


if __name__ == "__main__":
    train()
