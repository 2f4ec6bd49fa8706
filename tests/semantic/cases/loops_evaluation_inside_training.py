# accelerator: yes
# framework: none
import torch


def fit(model, train_iter, val_iter, criterion, optimizer, epochs, patience, device):
    best, waited = float("inf"), 0
    history = {"train": [], "val": []}  # kind: MAPPING
    for epoch in range(epochs):  # role: EPOCH
        model.train()
        train_loss = 0.0
        for batch_x, batch_y in train_iter:  # role: TRAIN_BATCH
            optimizer.zero_grad()
            y_hat = model(batch_x.to(device))  # kind: TENSOR
            loss = criterion(y_hat, batch_y.to(device))
            loss.backward()
            optimizer.step()
            train_loss += loss.item()  # frequency: every_pass
        model.eval()
        val_loss = 0.0
        for batch_x, batch_y in val_iter:  # role: EVAL_BATCH; grad: on
            y_hat = model(batch_x.to(device))  # grad: on
            val_loss += criterion(y_hat, batch_y.to(device)).item()  # kind: NUMBER; frequency: every_pass
        history["val"].append(val_loss / len(val_iter))  # frequency: unknown
        if val_loss < best:
            best, waited = val_loss, 0
            torch.save(model.state_dict(), "best.pt")  # frequency: unknown
        else:
            waited += 1
            if waited >= patience:
                break


def evaluated_now_and_then(model, loader, val_loader, criterion, optimizer, eval_every):
    for step, (x, y) in enumerate(loader):  # role: TRAIN_BATCH
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % eval_every == 0:
            model.eval()  # frequency: rare
            with torch.no_grad():
                for vx, vy in val_loader:  # role: EVAL_BATCH; grad: off
                    val = criterion(model(vx), vy).item()  # grad: off; frequency: every_pass
            model.train()


def embed(encoder, loader):
    features, labels = [], []
    encoder.eval()
    for images, y in loader:  # role: EVAL_BATCH
        with torch.no_grad():
            z = encoder(images.cuda())  # grad: off; kind: TENSOR
        features.append(z.cpu().numpy())  # grad: on; frequency: every_pass
        labels.append(y.numpy())
    return features, labels


def attack(model, loader, criterion, epsilon):
    for data, target in loader:
        data.requires_grad = True
        loss = criterion(model(data), target)  # kind: LOSS
        model.zero_grad()
        loss.backward()
        adversarial = data + epsilon * data.grad.sign()  # kind: TENSOR
        output = model(adversarial)  # kind: TENSOR
