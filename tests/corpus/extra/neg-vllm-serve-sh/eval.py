import torch
from transformers import pipeline
pipe = pipeline("text-generation", model="gpt2")
with torch.no_grad():
    print(pipe("x"))
