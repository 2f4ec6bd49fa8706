# accelerator: yes
# framework: none
import torch
from torch.cuda.amp import GradScaler, autocast

scaler = GradScaler()  # kind: SCALER; name: torch.cuda.amp.GradScaler


def train(model, loader, criterion, optimizer, scheduler, accumulation_steps, device):
    model.train()
    running_loss = 0.0
    optimizer.zero_grad()
    for i, (inputs, targets) in enumerate(loader):  # role: TRAIN_BATCH
        inputs = inputs.to(device, non_blocking=True)
        with autocast():  # name: torch.cuda.amp.autocast
            outputs = model(inputs)  # kind: TENSOR
            loss = criterion(outputs, targets.to(device)) / accumulation_steps  # kind: LOSS
        scaler.scale(loss).backward()  # frequency: every_pass
        if (i + 1) % accumulation_steps == 0 or (i + 1) == len(loader):
            scaler.unscale_(optimizer)  # frequency: every_pass
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # name: torch.nn.utils.clip_grad_norm_
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()  # frequency: every_pass
        running_loss += loss.item() * accumulation_steps  # frequency: every_pass
    return running_loss / len(loader)


def train_split(model, loader, criterion, optimizer, chunks):
    for images, labels in loader:  # role: TRAIN_BATCH
        optimizer.zero_grad()
        for x, y in zip(images.chunk(chunks), labels.chunk(chunks)):
            loss = criterion(model(x), y) / chunks  # kind: LOSS; frequency: every_pass
            loss.backward()
        optimizer.step()  # frequency: every_pass


def multi_task(model, loader, criteria, optimizer):
    for x, targets in loader:  # role: TRAIN_BATCH
        outputs = model(x)
        loss = 0
        for name, criterion in criteria.items():  # role: OTHER
            loss = loss + criterion(outputs[name], targets[name])  # frequency: every_pass
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def truncated_bptt(model, loader, criterion, optimizer, seq_len):
    for x, y in loader:  # role: TRAIN_BATCH
        hidden = model.init_hidden(x.size(0))
        loss = 0
        for t in range(seq_len):  # role: OTHER
            output, hidden = model(x[:, t], hidden)
            loss += criterion(output, y[:, t])  # frequency: every_pass
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_and_finish(model, data, optimizer, accumulate):
    for epoch in range(3):  # role: EPOCH
        for i, batch in enumerate(data.split(32)):  # role: TRAIN_BATCH
            model(batch).mean().backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        if (i + 1) % accumulate:
            optimizer.step()
            optimizer.zero_grad()
