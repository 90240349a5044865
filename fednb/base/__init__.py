"""What everything stands on: files, locks, seeds, checks of input, progress, processes. Imports nothing of fednb."""
