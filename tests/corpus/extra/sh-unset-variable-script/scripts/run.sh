python $WORKDIR/tools/finetune_it.py --batch_size 4
