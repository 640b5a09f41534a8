import torch
DTYPE = torch.bfloat16
ATTN = "flash_attention_2"
