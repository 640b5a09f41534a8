python3 tool.py --seed 3 train --bs=5 --precision bf16 --model=facebook/opt-2.7b
