"""Losses of methods out of view: what becomes of the value tells that it is one."""

import torch
from policies import make_policy


class Workspace:
    def __init__(self, cfg, loader):
        self.policy = make_policy(cfg)
        self.optimizer = torch.optim.AdamW(self.policy.parameters())
        self.loader = loader
        self.cfg = cfg

    def run(self):
        for batch in self.loader:
            whole = self.policy.compute(batch)
            share = whole / self.cfg.accumulate  # kind whole: LOSS
            share.backward()
            self.optimizer.step()

    def weigh(self):
        for batch in self.loader:
            loss_kl, loss_fit, scale = self.policy.parts(batch)
            print(loss_kl, loss_fit)  # kind loss_kl: LOSS; kind loss_fit: LOSS
            loss_weight = self.cfg.weight(batch)
            print(loss_weight, scale)  # kind loss_weight: UNKNOWN; kind scale: UNKNOWN
            total = loss_weight * loss_kl + loss_fit * scale
            total.backward()
            self.optimizer.step()

    def share(self):
        for batch in self.loader:
            parts = self.policy.all(batch)
            whole = parts["total"] / self.cfg.accumulate + self.cfg.beta * parts["kl_loss"]
            (whole + self.weights["fit"] * batch["scale"]).backward()
            total, divergence = parts["total"], parts["kl_loss"]
            print(total, divergence)  # kind total: LOSS; kind divergence: LOSS
            weight, scale = self.weights["fit"], parts["scale"]
            print(weight, scale)  # kind weight: UNKNOWN; kind scale: UNKNOWN
            self.optimizer.step()

    def of_outputs(self):
        for batch in self.loader:
            loss = self.policy(**batch).loss / self.cfg.tokens
            print(loss, self.policy(**batch).scale)  # kind loss: LOSS
            loss.backward()
            self.optimizer.step()
