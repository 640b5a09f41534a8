from sentence_transformers import SentenceTransformer, InputExample, losses
from torch.utils.data import DataLoader
model = SentenceTransformer("all-MiniLM-L6-v2")
dl = DataLoader(ex, shuffle=True, batch_size=16)
model.fit(train_objectives=[(dl, losses.CosineSimilarityLoss(model))], epochs=1, warmup_steps=100, use_amp=True)
