"""The default run is on the CPU, also where there is a GPU: bits are compared. `-m gpu` sees the GPU."""

import os
import sys

if "gpu" not in sys.argv:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
