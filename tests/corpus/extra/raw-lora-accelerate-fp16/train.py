import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from data import pairs


class Args:
    student = "Qwen/Qwen2.5-0.5B"
    teacher = "Qwen/Qwen2.5-7B"
    batch = 4


def main():
    acc = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
    teacher = AutoModelForCausalLM.from_pretrained(Args.teacher, dtype=torch.float16).eval().to(acc.device)
    for p in teacher.parameters():
        p.requires_grad_(False)
    student = AutoModelForCausalLM.from_pretrained(Args.student, dtype=torch.float32)
    student.gradient_checkpointing_enable()
    opt = torch.optim.AdamW((p for p in student.parameters() if p.requires_grad), lr=1e-4)
    student, opt, dl = acc.prepare(student, opt, DataLoader(pairs(), batch_size=Args.batch))
    for batch in dl:
        with acc.accumulate(student):
            with torch.no_grad():
                t = teacher(**batch).logits
            s = student(**batch).logits
            loss = F.kl_div(F.log_softmax(s, -1), F.softmax(t, -1), reduction="batchmean")
            acc.backward(loss)
            opt.step()
            opt.zero_grad()


if __name__ == "__main__":
    main()
