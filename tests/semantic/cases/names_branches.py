# accelerator: no
"""Which binding reaches a use when branches, loops and exceptions come between."""
import torch.nn as nn
import torch.optim as optim


def chain(name):
    if name == "a":
        layer = nn.Conv1d
    elif name == "b":
        layer = nn.Conv2d
    else:
        layer = nn.Conv3d
    return layer(3, 8, 3)  # name: ?


def inside(name):
    if name == "a":
        layer = nn.Conv1d
        layer(3, 8, 3)  # name: torch.nn.Conv1d
    else:
        layer = nn.Conv2d
        layer(3, 8, 3)  # name: torch.nn.Conv2d


def raising(name):
    if name == "a":
        layer = nn.Conv2d
    else:
        raise ValueError(name)
    return layer(3, 8, 3)  # name: torch.nn.Conv2d


def overwritten(name):
    if name == "a":
        layer = nn.Conv1d
    layer = nn.Conv2d
    return layer(3, 8, 3)  # name: torch.nn.Conv2d


def perhaps(name):
    layer = nn.Conv1d
    if name == "a":
        layer = nn.Conv2d
    return layer(3, 8, 3)  # name: ?


def through_a_loop(names):
    layer = nn.Conv1d
    for name in names:
        layer(3, 8, 3)  # name: ?
        layer = nn.Conv2d
    return layer(3, 8, 3)  # name: ?


def while_trying():
    try:
        layer = nn.Conv2d
    except RuntimeError:
        layer = nn.Conv1d
    return layer(3, 8, 3)  # name: ?


def with_a_block(lock):
    layer = nn.Conv1d
    with lock:
        layer = nn.Conv2d
    return layer(3, 8, 3)  # name: torch.nn.Conv2d


def made(name, params):
    if name == "sgd":
        optimizer = optim.SGD(params, lr=0.1)
    elif name == "adam":
        optimizer = optim.Adam(params)
    else:
        raise ValueError(name)
    optimizer.step()  # kind optimizer: OPTIMIZER


def made_otherwise(name, params):
    if name == "sgd":
        thing = optim.SGD(params, lr=0.1)
    else:
        thing = nn.Linear(3, 3)
    return thing  # kind: UNKNOWN


def declared():
    global LAYER
    LAYER = nn.Conv2d


def uses_it():
    return LAYER(3, 8, 3)  # name: torch.nn.Conv2d


def conditional_expression(flag):
    layer = nn.Conv2d if flag else nn.Conv1d
    return layer(3, 8, 3)  # name: ?


def tried(name, params):
    maker = None
    for _ in range(2):
        try:
            maker = optim.SGD
        except ImportError:
            if name:
                maker = optim.SGD
            else:
                continue
        maker(params)  # name: torch.optim.SGD
        maker = nn.Linear


def maybe_tried(params):
    maker = nn.Linear
    try:
        maker = optim.SGD
    except ImportError:
        pass
    maker(params)  # name: ?


def overwritten_in_a_branch(name):
    if name == "a":
        layer = nn.Conv1d
    else:
        layer = nn.Conv2d
        layer = nn.Conv1d
    return layer(3, 8, 3)  # name: torch.nn.Conv1d


def overwritten_before_the_next_pass(names):
    for name in names:
        if name:
            layer(3, 8, 3)  # name: torch.nn.Conv2d
        layer = nn.Conv1d
        layer = nn.Conv2d


def left_in_between(names):
    for name in names:
        layer = nn.Conv1d
        if name == "a":
            break
        layer = nn.Conv2d
    return layer(3, 8, 3)  # name: ?


def overwritten_if_nothing_fails(name):
    try:
        layer = nn.Conv1d
        name.strip()
        layer = nn.Conv2d
    except AttributeError:
        pass
    return layer(3, 8, 3)  # name: ?
