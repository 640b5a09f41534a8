python train.py args.json
