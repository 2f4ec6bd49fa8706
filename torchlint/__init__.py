"""torchlint finds what makes a PyTorch training script slow, rewrites it, and proves the rewrite."""

__version__ = "0.1.0"
