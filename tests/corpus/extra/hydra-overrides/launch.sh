#!/bin/bash
torchrun --standalone --nproc_per_node=2 main.py model=large train.micro=3 +train.liger=true
