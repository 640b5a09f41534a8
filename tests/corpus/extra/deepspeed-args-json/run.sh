NUM_WORKERS=2
NUM_GPUS_PER_WORKER=8
options=" \
    --deepspeed \
    --deepspeed_config ds_config.json \
    --model-name bigscience/bloom-7b1 \
"
run_cmd="deepspeed --num_nodes ${NUM_WORKERS} --num_gpus ${NUM_GPUS_PER_WORKER} pretrain.py $@ ${options}"
echo ${run_cmd}
eval ${run_cmd}
