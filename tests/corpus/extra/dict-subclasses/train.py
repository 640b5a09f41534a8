from transformers import TrainingArguments, Trainer, AutoModelForCausalLM
class AttrDict(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
c = AttrDict(bs=3, model="gpt2")
c.acc = 4
class D2(dict):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.__dict__ = self
e = D2({"gc": True})
Trainer(model=AutoModelForCausalLM.from_pretrained(c["model"]), args=TrainingArguments("o", per_device_train_batch_size=c.bs, gradient_accumulation_steps=c.acc, gradient_checkpointing=e.gc)).train()
