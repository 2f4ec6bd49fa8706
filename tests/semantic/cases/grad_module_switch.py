# accelerator: no
# framework: none
import torch
from torchvision.models import resnet50

torch.set_grad_enabled(False)
model = resnet50(pretrained=True).eval()  # kind: MODULE

for images, _ in torch.utils.data.DataLoader(data, batch_size=8):  # role: EVAL_BATCH; grad: off
    scores = model(images)  # grad: off; kind: TENSOR
    best = scores.topk(5)  # grad: off
