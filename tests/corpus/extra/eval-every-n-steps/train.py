
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
from tqdm.auto import tqdm
def val(model, dl, dev):
    model.eval(); tot = 0.
    with torch.no_grad():
        for b in tqdm(dl, desc="val"):
            b = {k: v.to(dev) for k, v in b.items()}
            tot += model(**b).loss
    model.train()
    return tot / len(dl)
def main(bs=2, eval_every=100):
    dev = torch.device("cuda")
    model = AutoModelForCausalLM.from_pretrained("EleutherAI/pythia-160m", torch_dtype=torch.bfloat16).to(dev)
    tr, va = DataLoader(load("t"), batch_size=bs), DataLoader(load("v"), batch_size=bs * 4)
    opt = torch.optim.AdamW(model.parameters(), fused=True)
    step = 0
    for ep in range(1):
        for b in tqdm(tr):
            b = {k: v.to(dev) for k, v in b.items()}
            loss = model(**b).loss / 4
            loss.backward()
            step += 1
            if step % 4 == 0:
                opt.step(); opt.zero_grad(set_to_none=True)
            if step % eval_every == 0:
                print(val(model, va, dev))
main()
