python train.py -b8 --batch_size_e 4
