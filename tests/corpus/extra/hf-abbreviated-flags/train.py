from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments, Trainer, AutoModelForCausalLM
@dataclass
class ModelArgs:
    model_name_or_path: str = field(default="gpt2")
    max_seq_length: int = field(default=512)
parser = HfArgumentParser((ModelArgs, TrainingArguments))
margs, targs = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(margs.model_name_or_path)
Trainer(model=model, args=targs, train_dataset=None).train()
