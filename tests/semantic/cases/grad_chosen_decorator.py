"""A decorator of the project picks one of torch's context managers."""

import torch


def smart_inference_mode(new=True):
    def decorate(function):
        return (torch.inference_mode if new else torch.no_grad)()(function)

    return decorate


@smart_inference_mode()
def run(model, loader):
    for x in loader:
        y = model(x)  # grad: off
        print(y)
