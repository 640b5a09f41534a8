# HfArgumentParser classic run_clm head
import os, sys, logging
from dataclasses import dataclass, field
from itertools import chain
from typing import Optional
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments, default_data_collator, set_seed, is_torch_xla_available
from datasets import load_dataset
@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default=None)
    torch_dtype: Optional[str] = field(default=None, metadata={"choices": ["auto", "bfloat16", "float16", "float32"]})
    low_cpu_mem_usage: bool = field(default=False)
    use_lora: bool = False
    def __post_init__(self):
        if self.model_name_or_path is None: raise ValueError("need model")
@dataclass
class DataTrainingArguments:
    dataset_name: Optional[str] = None
    block_size: Optional[int] = field(default=None)
    max_train_samples: Optional[int] = None
def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, data_args, training_args = parser.parse_json_file(json_file=os.path.abspath(sys.argv[1]))
    elif len(sys.argv) == 2 and sys.argv[1].endswith(".yaml"):
        model_args, data_args, training_args = parser.parse_yaml_file(os.path.abspath(sys.argv[1]))
    else:
        model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    import torch
    dtype = model_args.torch_dtype if model_args.torch_dtype in ["auto", None] else getattr(torch, model_args.torch_dtype)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, dtype=dtype, low_cpu_mem_usage=model_args.low_cpu_mem_usage)
    if model_args.use_lora:
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(r=8, task_type="CAUSAL_LM"))
    if len(tokenizer) > model.get_input_embeddings().weight.shape[0]: model.resize_token_embeddings(len(tokenizer))
    block_size = min(data_args.block_size or 1024, tokenizer.model_max_length) if data_args.block_size is None else min(data_args.block_size, tokenizer.model_max_length)
    def group_texts(examples):
        concatenated = {k: list(chain(*examples[k])) for k in examples.keys()}
        total = len(concatenated[list(examples.keys())[0]]); total = (total // block_size) * block_size
        result = {k: [t[i : i + block_size] for i in range(0, total, block_size)] for k, t in concatenated.items()}
        result["labels"] = result["input_ids"].copy(); return result
    raw = load_dataset(data_args.dataset_name)
    lm = raw.map(lambda e: tokenizer(e["text"]), batched=True).map(group_texts, batched=True)
    trainer = Trainer(model=model, args=training_args, train_dataset=lm["train"] if training_args.do_train else None, eval_dataset=lm["validation"] if training_args.do_eval else None, processing_class=tokenizer, data_collator=default_data_collator)
    if training_args.do_train:
        trainer.train(resume_from_checkpoint=None)
    if training_args.do_eval: trainer.evaluate()
if __name__ == "__main__": main()
