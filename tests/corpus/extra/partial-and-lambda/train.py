from functools import partial
from operator import attrgetter

import torch
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

Args = partial(TrainingArguments, bf16=True, per_device_train_batch_size=16, eval_strategy="epoch")
load = partial(AutoModelForSequenceClassification.from_pretrained, dtype=torch.float32)
name = "%s/%s-%s" % ("FacebookAI", "roberta", "base")
bs = max([4, 8, 12])
args = Args("o", per_device_train_batch_size=bs, per_device_eval_batch_size=int("6" + "4"))
ds = load_dataset("glue", "sst2")
trainer = Trainer(model_init=lambda: load(name, num_labels=2), args=args, train_dataset=ds["train"], eval_dataset=ds["validation"])
trainer.train()
