# accelerator: yes
# framework: accelerate
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(mixed_precision="bf16")
model, optimizer, train_dataloader, eval_dataloader = accelerator.prepare(model, optimizer, train_dataloader, eval_dataloader)
for epoch in range(num_epochs):  # role: EPOCH
    model.train()
    for step, batch in enumerate(train_dataloader):  # role: TRAIN_BATCH
        with accelerator.accumulate(model):
            outputs = model(**batch)
            loss = outputs.loss
            accelerator.backward(loss)  # frequency: every_pass
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    for step, batch in enumerate(eval_dataloader):  # role: EVAL_BATCH
        with torch.no_grad():
            outputs = model(**batch)  # grad: off
