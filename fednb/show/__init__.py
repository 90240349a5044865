"""Ways to look: pictures, explorers in JupyterLab, the site. Imports study, bench and below."""
