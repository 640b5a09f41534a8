import torch, lightning as L
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from torch.utils.data import DataLoader
strategy = FSDPStrategy(auto_wrap_policy={LlamaDecoderLayer}, activation_checkpointing_policy={LlamaDecoderLayer}, sharding_strategy="FULL_SHARD", cpu_offload=False)
fabric = L.Fabric(accelerator="cuda", devices=8, strategy=strategy, precision="bf16-true")
fabric.launch()
with fabric.init_module(empty_init=True):
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
model = fabric.setup_module(model)
opt = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-5))
dl = fabric.setup_dataloaders(DataLoader(ds, batch_size=1))
for i, b in enumerate(dl):
    acc = (i + 1) % 8 != 0
    with fabric.no_backward_sync(model, enabled=acc):
        loss = model(**b).loss
        fabric.backward(loss / 8)
    if not acc:
        opt.step(); opt.zero_grad()
