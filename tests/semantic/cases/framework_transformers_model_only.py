# accelerator: yes
# framework: none
"""A model of the library, trained by hand: nobody else owns the loop."""
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, get_linear_schedule_with_warmup

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased").cuda()  # kind: MODULE
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
scheduler = get_linear_schedule_with_warmup(optimizer, 10, 100)  # kind: SCHEDULER
train_dataloader = DataLoader(dataset, batch_size=8)
for epoch in range(3):  # role: EPOCH
    for batch in train_dataloader:  # role: TRAIN_BATCH
        outputs = model(**{k: v.cuda() for k, v in batch.items()})
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print(loss.item())  # frequency: every_pass; kind loss: LOSS
