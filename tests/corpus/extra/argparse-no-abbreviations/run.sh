python train.py --batch 2 --accum 2
