"""What `numpy.random` draws is one number without a size."""

import numpy as np

first = np.random.randint(0, 9)  # kind: NUMBER
second = np.random.randint(0, 9, 4)  # kind: NDARRAY
third = np.random.uniform(size=3)  # kind: NDARRAY
fourth = np.random.rand()  # kind: NUMBER
fifth = np.random.normal(np.zeros(3), 1.0)  # kind: UNKNOWN
sixth = np.random.choice(["a", "b"])  # kind: UNKNOWN
