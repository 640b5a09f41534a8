
from dataclasses import dataclass, field
import transformers
from transformers import Trainer, AutoModelForCausalLM
@dataclass
class MA:
    model_name_or_path: str = field(default=None)
@dataclass
class TA(transformers.TrainingArguments):
    model_max_length: int = field(default=512)
    optim: str = field(default="adamw_torch")
def train():
    parser = transformers.HfArgumentParser((MA, TA))
    m, t = parser.parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(m.model_name_or_path)
    tok = transformers.AutoTokenizer.from_pretrained(m.model_name_or_path, model_max_length=t.model_max_length)
    Trainer(model=model, tokenizer=tok, args=t).train()
if __name__ == "__main__":
    train()
