"""The static site: executed notebooks, claims, methods and figures as pages that work from a local folder."""
