import torch
from mine import Encoder, batches


class Trainer:
    def __init__(self):
        self.part = Encoder().to("cuda")
        self.optimizer = torch.optim.SGD(self.part.parameters(), lr=0.1)

    def train(self):
        for x in batches:
            given = self.part(x)  # kind: TENSOR; kind self.part: MODULE
            self.backward(given.mean())

    def backward(self, value):
        self.optimizer.zero_grad()
        value.backward()
        self.optimizer.step()
