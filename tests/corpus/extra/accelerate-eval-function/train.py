import torch, argparse
from torch.utils.data import DataLoader
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
def get_loaders(args):
    tr = DataLoader(load("train"), batch_size=args.bs, shuffle=True)
    ev = DataLoader(load("val"), batch_size=args.eval_bs)
    return tr, ev
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    tot = 0
    for b in loader:
        out = model(**b)
        tot += out.loss.item()
    return tot
def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bs", type=int, default=4)
    p.add_argument("--eval_bs", type=int, default=16)
    args = p.parse_args()
    acc = Accelerator(mixed_precision="bf16")
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    opt = torch.optim.AdamW(model.parameters())
    tr, ev = get_loaders(args)
    model, opt, tr, ev = acc.prepare(model, opt, tr, ev)
    for epoch in range(2):
        model.train()
        for b in tr:
            loss = model(**b).loss
            acc.backward(loss)
            opt.step(); opt.zero_grad()
        evaluate(model, ev)
if __name__ == "__main__":
    main()
