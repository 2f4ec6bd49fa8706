# accelerator: no
# framework: none
import torch
from torch import Tensor
from torch.distributions import Categorical, TransformedDistribution, kl_divergence


class Squashed(TransformedDistribution):
    pass


def objective(ratio: Tensor, advantages: Tensor):
    clipped = ratio.clamp(0.8, 1.2)
    smaller = torch.min(ratio * advantages, clipped * advantages)  # kind: TENSOR
    largest, places = torch.max(ratio, 1)  # kind: SEQUENCE
    other = ratio.max(advantages)  # kind: TENSOR
    return smaller, other


def act(policy, old, states, actions):
    chances = Categorical(logits=policy(states))  # kind: DISTRIBUTION
    chosen = chances.sample()  # kind: TENSOR
    logs = chances.log_prob(actions)  # kind: TENSOR
    ratio = (logs - old).exp()  # kind: TENSOR
    entropy = chances.entropy().mean()  # kind: TENSOR
    far = kl_divergence(chances, Categorical(logits=old))  # kind: TENSOR
    squashed = Squashed(chances, [])  # kind: DISTRIBUTION
    middle = squashed.base_dist  # kind: UNKNOWN
    return chosen, ratio, entropy, far, middle
