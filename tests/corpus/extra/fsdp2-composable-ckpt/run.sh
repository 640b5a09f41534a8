torchrun --nproc_per_node=8 --nnodes=1 t.py
