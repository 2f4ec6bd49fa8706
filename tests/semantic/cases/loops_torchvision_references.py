# accelerator: yes
# framework: none
import datetime
import time

import torch
import torchvision
import utils


def train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args, model_ema=None, scaler=None):
    model.train()
    metric_logger = utils.MetricLogger(delimiter="  ")
    header = f"Epoch: [{epoch}]"
    for i, (image, target) in enumerate(metric_logger.log_every(data_loader, args.print_freq, header)):  # role: TRAIN_BATCH; kind image: TENSOR
        start_time = time.time()
        image, target = image.to(device), target.to(device)  # frequency: every_pass
        with torch.amp.autocast("cuda", enabled=scaler is not None):  # name: torch.amp.autocast
            output = model(image)  # grad: on
            loss = criterion(output, target)  # kind: LOSS
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()  # frequency: every_pass
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()  # frequency: every_pass
            optimizer.step()
        if model_ema and i % args.model_ema_steps == 0:
            model_ema.update_parameters(model)  # frequency: rare
        metric_logger.update(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])  # frequency: every_pass


def evaluate(model, criterion, data_loader, device, print_freq=100):
    model.eval()
    metric_logger = utils.MetricLogger(delimiter="  ")
    with torch.inference_mode():
        for image, target in metric_logger.log_every(data_loader, print_freq, "Test:"):  # role: EVAL_BATCH
            image = image.to(device, non_blocking=True)
            output = model(image)  # grad: off
            loss = criterion(output, target)  # grad: off
            metric_logger.update(loss=loss.item())  # frequency: every_pass


def main(args):
    device = torch.device(args.device)  # kind: DEVICE
    dataset, dataset_test, train_sampler, test_sampler = load_data(args)
    data_loader = torch.utils.data.DataLoader(  # kind: LOADER; arg num_workers: decided; arg pin_memory: True
        dataset,
        batch_size=args.batch_size,
        sampler=train_sampler,
        num_workers=args.workers,
        pin_memory=True,
    )
    data_loader_test = torch.utils.data.DataLoader(dataset_test, batch_size=args.batch_size, sampler=test_sampler)
    model = torchvision.models.get_model(args.model)
    model.to(device)
    scaler = torch.cuda.amp.GradScaler() if args.amp else None
    start_time = time.time()
    for epoch in range(args.start_epoch, args.epochs):  # role: EPOCH
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train_one_epoch(model, None, None, data_loader, device, epoch, args, None, scaler)
        evaluate(model, None, data_loader_test, device=device)
    total_time_str = str(datetime.timedelta(seconds=int(time.time() - start_time)))  # kind: STRING
