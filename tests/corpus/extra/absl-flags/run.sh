python train.py --batch=3 --nogc --model=bigcode/starcoder2-3b
