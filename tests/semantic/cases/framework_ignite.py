# framework: ignite
from ignite.engine import Engine, Events, create_supervised_trainer

trainer = create_supervised_trainer(model, optimizer, criterion, device=device)
trainer.run(train_loader, max_epochs=10)
