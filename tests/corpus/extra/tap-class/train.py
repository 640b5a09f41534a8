from tap import Tap
from typing import List, Optional
from transformers import TrainingArguments, Trainer, AutoModelForCausalLM
class Args(Tap):
    model: str = "gpt2"  # the model
    batch_size: int = 2
    lr: float
    ckpt: bool = False
    accum: Optional[int] = None
    def configure(self):
        self.add_argument("-b", "--batch_size")
    def process_args(self):
        if self.accum is None:
            self.accum = 64 // self.batch_size
args = Args(underscores_to_dashes=True).parse_args()
Trainer(model=AutoModelForCausalLM.from_pretrained(args.model), args=TrainingArguments("o", per_device_train_batch_size=args.batch_size, gradient_accumulation_steps=args.accum, gradient_checkpointing=args.ckpt)).train()
