# function-heavy
import torch, random
from functools import partial
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup
from torch.utils.data import DataLoader
CFG = dict(model=dict(name="EleutherAI/pythia-410m", kwargs=dict(torch_dtype=torch.float16)), optim=dict(cls="AdamW", lr=1e-4), data=dict(bs=6, seq=256))
REG = {"AdamW": torch.optim.AdamW, "SGD": partial(torch.optim.SGD, momentum=0.9)}
def build(cfg):
    m = AutoModelForCausalLM.from_pretrained(cfg["name"], **cfg["kwargs"]); m.cuda(); m.train(); return m
def build_opt(m, cfg): return REG[cfg["cls"]](m.parameters(), lr=cfg["lr"])
def loader(cfg, tok): return DataLoader(ds, cfg["bs"], collate_fn=lambda b: tok(b, return_tensors="pt", padding="max_length", truncation=True, max_length=cfg["seq"]))
def step(m, b, scaler):
    with torch.autocast("cuda", dtype=torch.float16):
        out = m(**b, labels=b["input_ids"])
    scaler.scale(out.loss).backward(); return out.loss.item()
class Runner:
    def __init__(self, cfg): self.cfg = cfg; self.m = build(cfg["model"]); self.o = build_opt(self.m, cfg["optim"]); self.s = torch.amp.GradScaler("cuda"); self.k = 0
    def run(self, tok):
        for b in loader(self.cfg["data"], tok):
            l = step(self.m, b, self.s); self.k += 1
            if self.k % 4 == 0: self.s.step(self.o); self.s.update(); self.o.zero_grad()
if __name__ == "__main__":
    from transformers import AutoTokenizer
    Runner(CFG).run(AutoTokenizer.from_pretrained(CFG["model"]["name"]))
