BS=5 python cli.py train gpt2 --grad-accum 2 --fp32 --ckpt
