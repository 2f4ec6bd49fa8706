import torch
from ignite.engine import Engine, Events, events


def step(engine, batch):
    torch.cuda.synchronize()  # frequency: every_pass
    return batch


trainer = Engine(step)


@trainer.on(Events.ITERATION_COMPLETED)
def each(engine):
    torch.cuda.synchronize()  # frequency: every_pass


@trainer.on(events.Events.ITERATION_STARTED)
def before(engine):
    torch.cuda.synchronize()  # frequency: every_pass


@trainer.on(Events.ITERATION_COMPLETED(every=100))
def seldom(engine):
    torch.cuda.synchronize()  # frequency: rare


@trainer.on(Events.EPOCH_COMPLETED)
def after(engine):
    torch.cuda.synchronize()  # frequency: rare


@trainer.on(trainer.events.OWN)
def other(engine):
    torch.cuda.synchronize()  # frequency: unknown
