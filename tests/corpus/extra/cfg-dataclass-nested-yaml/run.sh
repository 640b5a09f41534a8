python train.py --config configs/base.yaml model.name=EleutherAI/pythia-410m optim.batch=12
