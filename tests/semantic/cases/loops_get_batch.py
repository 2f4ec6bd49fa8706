# accelerator: yes
# framework: none
import time

import numpy as np
import torch

batch_size = 12
block_size = 1024
eval_interval = 500
eval_iters = 200
max_iters = 5000
device = "cuda"
train_data = np.memmap("train.bin", dtype=np.uint16, mode="r")
val_data = np.memmap("val.bin", dtype=np.uint16, mode="r")


def get_batch(split):
    data = train_data if split == "train" else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))  # kind: TENSOR
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])  # kind: TENSOR
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
    x, y = x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x, y


@torch.no_grad()
def estimate_loss():
    out = {}  # kind: MAPPING
    model.eval()  # grad: off
    for split in ["train", "val"]:  # role: OTHER
        losses = torch.zeros(eval_iters)  # kind: TENSOR
        for k in range(eval_iters):  # role: EVAL_BATCH
            X, Y = get_batch(split)  # kind X: TENSOR
            logits, loss = model(X, Y)  # grad: off
            losses[k] = loss.item()  # frequency: every_pass
        out[split] = losses.mean()  # kind: TENSOR
    model.train()
    return out


model = GPT(GPTConfig()).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))  # kind: OPTIMIZER; arg fused: absent; arg lr: 6e-4

for step in range(max_iters):  # role: TRAIN_BATCH
    if step % eval_interval == 0 or step == max_iters - 1:
        losses = estimate_loss()  # frequency: rare
        print(f"step {step}: train loss {losses['train']:.4f}")  # frequency: rare

    xb, yb = get_batch("train")  # frequency: every_pass; kind xb: TENSOR
    logits, loss = model(xb, yb)  # grad: on
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()  # frequency: every_pass

X, Y = get_batch("train")
iter_num = 0
local_iter_num = 0
gradient_accumulation_steps = 8
t0 = time.time()
while True:  # role: TRAIN_BATCH
    if iter_num % eval_interval == 0:
        losses = estimate_loss()  # frequency: rare
    for micro_step in range(gradient_accumulation_steps):
        logits, loss = model(X, Y)  # frequency: every_pass
        loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

    t1 = time.time()
    dt = t1 - t0
    t0 = t1
    if iter_num % 10 == 0:
        lossf = loss.item() * gradient_accumulation_steps  # frequency: rare
        print(f"iter {iter_num}: loss {lossf:.4f}, time {dt*1000:.2f}ms")  # frequency: rare
    iter_num += 1  # frequency: every_pass
    if iter_num > max_iters:
        break  # frequency: rare
