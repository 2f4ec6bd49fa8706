# accelerator: yes
# framework: none
"""Nothing in a file of tests is run often enough to be tuned."""
import pytest
import torch


@pytest.mark.gpu
def test_losses_fall(model, loader, criterion, optimizer):
    for x, y in loader:  # role: TRAIN_BATCH
        loss = criterion(model(x.cuda()), y.cuda())  # frequency: rare
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert torch.isfinite(loss).item()  # frequency: rare
