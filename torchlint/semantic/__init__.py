"""What a script means: names, kinds, loops, layers, calls, devices."""
