python train.py --micro 3 --name bigscience/bloom-560m --ckpt true
