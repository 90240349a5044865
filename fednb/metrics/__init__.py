"""Numbers about runs and vectors: each module measures one thing."""
