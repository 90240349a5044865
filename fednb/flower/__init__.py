"""Methods of the catalogue as Flower apps: what a server and its clients do and say. Imports runs and below.

Flower (`pip install 'fednb[flower]'`) is imported when an app is asked for. Its telemetry and its search for updates
are switched off in every process that fednb starts; where you start Flower's commands yourself, set
FLWR_TELEMETRY_ENABLED=0 and FLWR_DISABLE_UPDATE_CHECK=1.
"""

from fednb.flower.apps import client_app, server_app
from fednb.flower.config import OwnData

__all__ = ["OwnData", "client_app", "server_app"]
