from transformers import TrainingArguments, Trainer, AutoModelForCausalLM
class Config:
    def __init__(self, d):
        self._d = d
    def __getitem__(self, k):
        return self._d[k]
    def __getattr__(self, k):
        return self._d[k]
    def get(self, k, default=None):
        return self._d.get(k, default)
    def __contains__(self, k):
        return k in self._d
c = Config({"bs": 3, "model": "gpt2", "acc": 4})
Trainer(model=AutoModelForCausalLM.from_pretrained(c["model"]), args=TrainingArguments("o", per_device_train_batch_size=c["bs"], gradient_accumulation_steps=c.acc, bf16=c.get("bf16", True), gradient_checkpointing="gc" in c)).train()
