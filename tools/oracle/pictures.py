"""Pictures of the goldens of towers."""

import numpy as np


def picture(width, height, seed):
    """Noise of 8 bits, (height, width, 3): xorshift32, as the test has it."""
    state = (seed * 0x9E3779B9) & 0xFFFFFFFF | 1
    levels = np.empty(height * width * 3, np.uint8)
    for at in range(len(levels)):
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        levels[at] = state >> 24
    return levels.reshape(height, width, 3)
