"""What a value is: its kind, origin, type, device and gradient."""
