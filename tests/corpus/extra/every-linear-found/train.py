from dataclasses import dataclass, field
from typing import Optional
import torch, transformers
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Seq2SeqTrainer
from peft import prepare_model_for_kbit_training, LoraConfig, get_peft_model
import bitsandbytes as bnb
@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default="EleutherAI/pythia-12b")
@dataclass
class TrainingArguments(transformers.Seq2SeqTrainingArguments):
    full_finetune: bool = field(default=False)
    double_quant: bool = field(default=True)
    quant_type: str = field(default="nf4")
    bits: int = field(default=4)
    lora_r: int = field(default=64)
    lora_alpha: float = field(default=16)
    max_memory_MB: int = field(default=80000)
    optim: str = field(default='paged_adamw_32bit')
    per_device_train_batch_size: int = field(default=1)
    gradient_accumulation_steps: int = field(default=16)
    gradient_checkpointing: bool = field(default=True)
    output_dir: str = "./o"
def find_all_linear_names(args, model):
    cls = bnb.nn.Linear4bit if args.bits == 4 else (bnb.nn.Linear8bitLt if args.bits == 8 else torch.nn.Linear)
    names = set()
    for name, module in model.named_modules():
        if isinstance(module, cls):
            n = name.split('.'); names.add(n[0] if len(n) == 1 else n[-1])
    if 'lm_head' in names: names.remove('lm_head')
    return list(names)
def get_model(args):
    n_gpus = torch.cuda.device_count()
    max_memory = {i: f'{args.max_memory_MB}MB' for i in range(n_gpus)}
    if args.full_finetune: assert args.bits in [16, 32]
    compute_dtype = (torch.float16 if args.fp16 else (torch.bfloat16 if args.bf16 else torch.float32))
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, load_in_4bit=args.bits == 4, load_in_8bit=args.bits == 8, device_map="auto", max_memory=max_memory,
        quantization_config=BitsAndBytesConfig(load_in_4bit=args.bits == 4, load_in_8bit=args.bits == 8, llm_int8_threshold=6.0, bnb_4bit_compute_dtype=compute_dtype, bnb_4bit_use_double_quant=args.double_quant, bnb_4bit_quant_type=args.quant_type),
        torch_dtype=(torch.float32 if args.fp16 else (torch.bfloat16 if args.bf16 else torch.float32)))
    setattr(model, 'is_parallelizable', True)
    if not args.full_finetune:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=args.gradient_checkpointing)
        modules = find_all_linear_names(args, model)
        model = get_peft_model(model, LoraConfig(r=args.lora_r, lora_alpha=args.lora_alpha, target_modules=modules, lora_dropout=0.0, task_type="CAUSAL_LM"))
    return model
def train():
    hfparser = transformers.HfArgumentParser((ModelArguments, TrainingArguments))
    model_args, training_args, extra = hfparser.parse_args_into_dataclasses(return_remaining_strings=True)
    import argparse
    args = argparse.Namespace(**vars(model_args), **vars(training_args))
    model = get_model(args)
    trainer = Seq2SeqTrainer(model=model, args=training_args, train_dataset=[])
    trainer.train()
if __name__ == "__main__": train()
