"""Which browser the test drives. Run as a program it says which, and installs Debian's Chromium where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
WAY_OUT = "install Chromium or Chrome, or say where one is: FEDNB_BROWSER=/path/to/chrome make test-browser"
INSTALL = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium")


class NoBrowser(RuntimeError):
    """There is no browser to drive; the text says what to do."""


def found() -> str | None:
    """The browser of FEDNB_BROWSER, else the first one that is installed."""
    if chosen := os.environ.get("FEDNB_BROWSER"):
        if shutil.which(chosen) is None:
            raise NoBrowser(f"FEDNB_BROWSER={chosen} is no program; {WAY_OUT}")
        return shutil.which(chosen)
    installed = [path for name in NAMES if (path := shutil.which(name))]
    return next(iter([*installed, *(path for path in APPLICATIONS if Path(path).exists())]), None)


def needed() -> str:
    """The browser, or the reason why there is none."""
    if (browser := found()) is None:
        raise NoBrowser(f"no browser: {WAY_OUT}")
    return browser


def privilege() -> list[str] | None:
    """What to put before a command that installs: nothing for root, sudo where it does not ask, else None."""
    if os.geteuid() == 0:
        return []
    asked = ["sudo", "-n"]
    allowed = shutil.which("sudo") and subprocess.run([*asked, "true"], capture_output=True).returncode == 0
    return asked if allowed else None


def install() -> None:
    """Debian's Chromium, where Debian is and where we may."""
    if not shutil.which("apt-get") or (before := privilege()) is None:
        return
    print("installing Chromium, a minute or two ...", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("apt-get", "update", "-qq"), INSTALL):
        done = subprocess.run([*before, *command], env=quiet, capture_output=True, text=True)
        if done.returncode:
            raise NoBrowser(f"`{' '.join(command)}` failed ({last_line(done.stderr)}); {WAY_OUT}")


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def main() -> None:
    try:
        if found() is None:
            install()
        print(f"browser: {needed()}")
    except NoBrowser as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
