import fire
from common import run
class Tool:
    def __init__(self, model="gpt2", bf16=False):
        self.model = model; self.bf16 = bf16
    def train(self, bs: int = 8, ga=1, *, gc=False, **kw):
        run(self.model, bs, ga, self.bf16, gc)
    def export(self, path): pass
if __name__ == "__main__":
    fire.Fire(Tool)
