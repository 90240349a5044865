"""Runs on an existing Dask cluster. Imports what `runs` may, and Dask (the extra `cluster`) when a cluster is named."""
