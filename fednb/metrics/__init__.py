"""Functions of vectors and of runs; each module measures one thing. Imports runs and below."""
