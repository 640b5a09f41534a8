import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_scheduler
from datasets import load_dataset
tok = AutoTokenizer.from_pretrained("bert-base-uncased")
raw = load_dataset("glue", "mrpc")
ds = raw.map(lambda e: tok(e["sentence1"], e["sentence2"], truncation=True, max_length=128), batched=True)
train_dataloader = DataLoader(ds["train"], shuffle=True, batch_size=8)
eval_dataloader = DataLoader(ds["validation"], batch_size=32)
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=2).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=5e-5)
for epoch in range(3):
    model.train()
    for batch in train_dataloader:
        batch = {k: v.cuda() for k, v in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
    model.eval()
    for batch in eval_dataloader:
        batch = {k: v.cuda() for k, v in batch.items()}
        with torch.no_grad():
            outputs = model(**batch)
        preds = outputs.logits.argmax(-1)
