python train.py @args.txt --accum 2
