"""Where data comes from: loaders, datasets, batches."""
