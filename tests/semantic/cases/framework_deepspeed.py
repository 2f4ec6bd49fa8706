# accelerator: yes
# framework: deepspeed
import deepspeed
import torch

model_engine, optimizer, trainloader, _ = deepspeed.initialize(args=args, model=net, training_data=trainset)
for i, data in enumerate(trainloader):  # role: TRAIN_BATCH
    inputs, labels = data[0].to(model_engine.local_rank), data[1].to(model_engine.local_rank)
    loss = criterion(model_engine(inputs), labels)
    model_engine.backward(loss)
    model_engine.step()
