#!/bin/bash
NGPU=8
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
LAUNCH="torchrun --nnodes=1 --nproc_per_node=$NGPU"
OPTS=""
OPTS+=" --model Qwen/Qwen2.5-3B"
OPTS+=" --bs $((16 / NGPU))"
OPTS+=" --seq 4096 --gc"
CMD="$LAUNCH train.py $OPTS"
echo $CMD
eval $CMD 2>&1 | tee log.txt
