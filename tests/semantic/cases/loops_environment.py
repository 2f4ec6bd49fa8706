# accelerator: no
# framework: none
"""Reinforcement learning: an environment is stepped, no loader is read."""
from itertools import count

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

env = gym.make("CartPole-v1")


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 128)
        self.dropout = nn.Dropout(p=0.6)
        self.affine2 = nn.Linear(128, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = self.dropout(self.affine1(x))  # kind: TENSOR
        return F.softmax(self.affine2(F.relu(x)), dim=1)  # kind: TENSOR


policy = Policy()  # kind: MODULE
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
eps = np.finfo(np.float32).eps.item()


def select_action(state):
    state = torch.from_numpy(state).float().unsqueeze(0)  # kind: TENSOR
    probs = policy(state)  # kind: TENSOR
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R = 0
    policy_loss = []
    returns = []
    for r in policy.rewards[::-1]:  # role: OTHER
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)  # kind: TENSOR
    returns = (returns - returns.mean()) / (returns.std() + eps)  # kind: TENSOR
    for log_prob, R in zip(policy.saved_log_probs, returns):  # role: OTHER
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()  # kind: TENSOR
    policy_loss.backward()  # kind policy_loss: LOSS
    optimizer.step()


def main():
    running_reward = 10
    for i_episode in count(1):
        state, _ = env.reset()
        ep_reward = 0
        for t in range(1, 10000):  # role: OTHER
            action = select_action(state)
            state, reward, done, _, _ = env.step(action)
            policy.rewards.append(reward)
            ep_reward += reward
            if done:
                break
        running_reward = 0.05 * ep_reward + 0.95 * running_reward
        finish_episode()


def play(net, episodes):
    for episode in range(episodes):  # role: OTHER
        obs, done = env.reset()[0], False
        while not done:  # role: OTHER
            with torch.no_grad():
                action = net(torch.as_tensor(obs)).argmax().item()  # grad: off
            obs, reward, done, *_ = env.step(action)


def ppo_update(agent, optimizer, storage, epochs):
    for epoch in range(epochs):  # role: EPOCH
        for obs, actions, returns in storage.batches(64):
            loss = agent.loss(obs, actions, returns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
