"""Runs: settings times methods times seeds, their keys, store, checkpoints, probes. Imports engines and below."""
