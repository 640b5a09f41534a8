# distillation via Trainer subclass
import torch, torch.nn.functional as F
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
class DistilArgs(TrainingArguments):
    def __init__(self, *args, alpha=0.5, temperature=2.0, **kwargs):
        super().__init__(*args, **kwargs); self.alpha = alpha; self.temperature = temperature
class DistilTrainer(Trainer):
    def __init__(self, *args, teacher_model=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher_model; self.teacher.eval()
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        out = model(**inputs)
        with torch.no_grad(): t = self.teacher(**inputs)
        return out.loss
student = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased", num_labels=5)
teacher = AutoModelForSequenceClassification.from_pretrained("bert-large-uncased", num_labels=5)
args = DistilArgs("o", per_device_train_batch_size=48, alpha=0.7, fp16=True, optim="adamw_torch")
DistilTrainer(model=student, args=args, teacher_model=teacher, train_dataset=d).train()
