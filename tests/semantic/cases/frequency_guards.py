# accelerator: yes
# framework: none
"""What runs on every step and what does not."""
import logging
import sys
import time

import torch
import torch.distributed as dist

logger = logging.getLogger(__name__)


def logged(model, loader, criterion, optimizer, writer, args, rank, log_interval, device):
    global_step = 0
    start = time.time()
    for i, (x, y) in enumerate(loader):  # role: TRAIN_BATCH
        loss = criterion(model(x.to(device)), y.to(device))  # frequency: every_pass
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        global_step += 1

        if i % 10 == 9:
            print(loss.item())  # frequency: rare
        if not i % args.print_freq:
            print(loss.item())  # frequency: rare
        if i % log_interval == 0 and i > 0:
            print(loss.item())  # frequency: rare
        if args.seen["steps"] == 1 or args.seen["steps"] % 100 == 0:
            print(loss.item())  # frequency: rare
        if global_step % 100 == 0 and args.verbose:
            print(loss.item())  # frequency: rare
        if args.log_every and global_step % args.log_every == 0:
            print(loss.item())  # frequency: rare
        if (i + 1) % log_interval == 0 or i + 1 == len(loader):
            print(loss.item())  # frequency: rare
        if i == 0:
            print(x.shape)  # frequency: rare
        if i in args.milestones:
            print(loss.item())  # frequency: rare
        if i == len(loader) - 1:
            print(loss.item())  # frequency: rare
        if rank == 0 and i % 20 == 0:
            print(loss.item())  # frequency: rare
        if dist.get_rank() == 0:
            print(loss.item())  # frequency: rare
        if args.debug:
            print(loss.item())  # frequency: rare
        if args.do_viz:
            print(loss.item())  # frequency: rare
        if args.longest is not None and x.size(1) >= args.longest:
            print(loss.item())  # frequency: rare
        should_log = i % log_interval == 0
        if should_log:
            print(loss.item())  # frequency: rare
        if i % 100 == 0: print(loss.item())  # frequency: every_pass
        if i % 100 != 0:
            writer.add_scalar("loss", loss.item(), i)  # frequency: every_pass
        else:
            writer.flush()  # frequency: rare
        if i % 100 == 0:
            writer.flush()  # frequency: rare
        else:
            writer.add_scalar("loss", loss.item(), i)  # frequency: every_pass
        if args.mixup > 0 and y.dim() == 1:
            print(loss.item())  # frequency: every_pass
        if args.clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)  # frequency: every_pass
        if torch.isnan(loss):
            raise RuntimeError(f"loss is {loss.item()}")  # frequency: rare
        with torch.no_grad():
            accuracy = (model(x).argmax(1) == y).float().mean().item()  # frequency: every_pass; grad: off
        try:
            writer.add_scalar("accuracy", accuracy, i)  # frequency: every_pass
        except OSError:
            logger.warning("step %d: %f", i, loss.item())  # frequency: rare


def skipping(model, loader, criterion, optimizer, log_interval):
    for i, (x, y) in enumerate(loader):
        if x.size(0) < 2:
            continue
        loss = criterion(model(x.cuda()), y.cuda())  # frequency: every_pass
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (i + 1) % log_interval != 0:
            continue
        print(loss.item())  # frequency: rare
        logger.info("step %d", i)  # frequency: rare


def skipping_bad_batches(model, loader, criterion, optimizer):
    for batch in loader:
        if batch is None:
            continue
        x, y = batch
        loss = criterion(model(x.cuda()), y.cuda())  # frequency: every_pass
        if not torch.isfinite(loss):
            optimizer.zero_grad()
            continue
        loss.backward()  # frequency: every_pass
        optimizer.step()
        if i % 50:
            continue
        print(loss.item())  # frequency: rare


def limited(model, loader, criterion, optimizer, limit):
    for i, (x, y) in enumerate(loader):
        if i >= limit:
            break  # frequency: rare
        loss = criterion(model(x.cuda()), y.cuda())  # frequency: every_pass
        loss.backward()
        optimizer.step()


def timed(model, loader, criterion, optimizer):
    for x, y in loader:
        torch.cuda.synchronize()  # frequency: rare
        start = time.perf_counter()
        loss = criterion(model(x.cuda()), y.cuda())  # frequency: every_pass
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()  # frequency: rare
        elapsed = time.perf_counter() - start  # kind: NUMBER


def metered(model, loader, criterion, optimizer, losses, batch_time, args):
    end = time.time()
    for i, (images, target) in enumerate(loader):
        output = model(images.cuda())
        loss = criterion(output, target.cuda())
        losses.update(loss.item(), images.size(0))  # frequency: every_pass
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            progress.display(i + 1)  # frequency: rare


def stopped(model, loader, criterion, optimizer):
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x.cuda()), y.cuda())
        if not loss.isfinite():
            print(loss.item())  # frequency: rare
            sys.exit(1)
        loss.backward()
        optimizer.step()
        if i % 100 is 0:
            print(loss.item())  # frequency: rare


@torch.no_grad()
def one_batch(model, loader):
    for x, y in loader:
        out = model(x.cuda())  # frequency: rare
        break
    for x, y in loader:
        if len(x) < 8:
            continue
        out = model(x.cuda())  # frequency: every_pass
        break
    return out


def by_the_clock(model, loader, criterion, optimizer, best):
    shown = None
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now = time.monotonic()
        if shown is None or now - shown > 10:
            print(loss.item())  # frequency: rare
            shown = now
        if now - shown < 10:
            print(loss.item())  # frequency: every_pass
        if best is None or loss < best:
            print(loss.item())  # frequency: every_pass


def asks_others(model, loader, criterion, optimizer, path, last, n):
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % n == 0 or i == last or wants_one(path) is True:
            print(loss.item())  # frequency: rare
        if (done := (last is not None and i >= last)) or (i % n) == 0:
            print(loss.item())  # frequency: rare
            if done:
                return
        if wants_one(path) is True:
            print(loss.item())  # frequency: every_pass
        if i % n == 0 or x is True:
            print(loss.item())  # frequency: every_pass


for step, (x, y) in enumerate(loader):
    criterion(model(x), y).backward()
    optimizer.step()
    if step % 50 == 0:
        print(step)
    else:
        continue
    print(loss.item())  # frequency: rare


for step, (x, y) in enumerate(loader):
    criterion(model(x), y).backward()
    optimizer.step()
    if verbose:
        if step % 50 != 0:
            continue
    else:
        print(step)
    print(loss.item())  # frequency: every_pass
