"""What runs add up to: the numbers compared, the times weighed."""
