"""Runs: settings times methods times seeds; keys, store, checkpoints, probes, times. Imports engines and below."""
