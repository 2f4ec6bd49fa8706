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


def counted(engine, model):
    torch.cuda.synchronize()  # frequency: every_pass


def evaluated(engine):
    torch.cuda.synchronize()  # frequency: rare


def either(engine):
    torch.cuda.synchronize()  # frequency: every_pass


def timed(engine):
    torch.cuda.synchronize()  # frequency: unknown


trainer.add_event_handler(Events.ITERATION_COMPLETED, counted, None)
trainer.add_event_handler(handler=evaluated, event_name=Events.EPOCH_COMPLETED | Events.COMPLETED)
trainer.add_event_handler(Events.ITERATION_COMPLETED(every=1) | Events.COMPLETED, either)
trainer.add_event_handler(trainer.events.OWN, timed)


class Training:
    def __init__(self):
        self.trainer = Engine(self._step)
        self.trainer.add_event_handler(Events.EPOCH_COMPLETED(every=2), self._evaluate, self)

    def _step(self, engine, batch):
        torch.cuda.synchronize()  # frequency: every_pass

    def _evaluate(self, engine, loader):
        torch.cuda.synchronize()  # frequency: rare
