"""Papers held against runs: tables, claims, notebooks, verdicts. Imports metrics, runs and below."""
