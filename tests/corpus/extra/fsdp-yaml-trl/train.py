from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer, TrlParser


@dataclass
class ScriptArguments:
    dataset_path: str = field(default=None, metadata={"help": "x"})
    model_id: str = field(default=None)


def training_function(script_args, training_args):
    torch_dtype = torch.bfloat16
    quant_storage_dtype = torch.bfloat16
    quantization_config = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_use_double_quant=True, bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch_dtype, bnb_4bit_quant_storage=quant_storage_dtype)
    model = AutoModelForCausalLM.from_pretrained(
        script_args.model_id, quantization_config=quantization_config, attn_implementation="sdpa",
        dtype=quant_storage_dtype, use_cache=False if training_args.gradient_checkpointing else True)
    if training_args.gradient_checkpointing:
        training_args.gradient_checkpointing_kwargs = {"use_reentrant": True}
    peft_config = LoraConfig(lora_alpha=8, lora_dropout=0.05, r=16, bias="none", target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(model=model, args=training_args, train_dataset=load_dataset("imdb", split="train"), peft_config=peft_config)
    if trainer.accelerator.is_main_process:
        trainer.model.print_trainable_parameters()
    trainer.train()


if __name__ == "__main__":
    script_args, training_args = TrlParser((ScriptArguments, SFTConfig)).parse_args_and_config()
    training_function(script_args, training_args)
