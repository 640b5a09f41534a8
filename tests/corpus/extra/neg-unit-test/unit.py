import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM


@pytest.mark.parametrize("n", [1, 2])
def test_forward(n):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("gpt2"))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(input_ids=torch.ones(n, 4, dtype=torch.long), labels=torch.ones(n, 4, dtype=torch.long)).loss
    loss.backward()
    opt.step()
