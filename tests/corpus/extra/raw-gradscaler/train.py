import torch
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader
from transformers import AutoModelForTokenClassification, AutoTokenizer, get_linear_schedule_with_warmup

from ner import load_conll

EPOCHS, BATCH, MAXLEN = 3, 32, 160
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
tokenizer = AutoTokenizer.from_pretrained("xlm-roberta-large")
model = AutoModelForTokenClassification.from_pretrained("xlm-roberta-large", num_labels=9, torch_dtype=torch.float32)
model.to(device)
train_loader = DataLoader(load_conll(tokenizer, max_len=MAXLEN), BATCH, shuffle=True)
no_decay = ["bias", "LayerNorm.weight"]
groups = [
    {"params": [p for n, p in model.named_parameters() if not any(d in n for d in no_decay)], "weight_decay": 0.01},
    {"params": [p for n, p in model.named_parameters() if any(d in n for d in no_decay)], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=2e-5, fused=True)
scaler = GradScaler()


def train_epoch():
    model.train()
    for batch in train_loader:
        optimizer.zero_grad(set_to_none=True)
        batch = {k: v.to(device) for k, v in batch.items()}
        with autocast():
            out = model(**batch)
        scaler.scale(out.loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


for epoch in range(EPOCHS):
    train_epoch()
