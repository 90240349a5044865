"""Explorers for JupyterLab: a picture that follows its controls. Executed headless, each is a grid of pictures."""
