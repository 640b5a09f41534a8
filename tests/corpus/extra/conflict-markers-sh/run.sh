#!/bin/bash
<<<<<<< HEAD
torchrun --nproc_per_node 2 train.py --bs 2
=======
torchrun --nproc_per_node 4 train.py --bs 4
>>>>>>> feature
