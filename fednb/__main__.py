"""`python -m fednb`: the command `fednb` where it is not on the path."""

import sys

from fednb.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
