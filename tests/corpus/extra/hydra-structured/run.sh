python train.py model.name=gpt2 bs=2 ++ga=8
