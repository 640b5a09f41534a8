cd "$(dirname "$0")"
CUDA_VISIBLE_DEVICES=2 PYTHONPATH=. python -m recipes.sft.main --config recipes/sft/base.yaml --micro 3
