python start.py train --bs 2 --gc --model=facebook/opt-125m --bf16
