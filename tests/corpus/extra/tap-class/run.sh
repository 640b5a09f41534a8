python train.py --batch-size 8 --lr 1e-4 --ckpt --model Qwen/Qwen2.5-0.5B
