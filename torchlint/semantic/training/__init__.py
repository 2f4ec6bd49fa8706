"""What a training script does: steps, optimizers, schedulers, evaluations, waits."""
