"""Reading what a profiler recorded, and where the device was idle."""
