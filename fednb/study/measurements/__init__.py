"""Measurements for single figures and tables of papers: each lives in one file here, and is found by its name.

Every module of this folder is loaded with the folder, so that a new measurement is a new file, or a function in one.
"""

from importlib import import_module
from pkgutil import iter_modules

for _found in iter_modules(__path__, f"{__name__}."):
    import_module(_found.name)
