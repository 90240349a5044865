"""How fast it is on this machine (`fednb bench ...`); nothing here is asserted. Imports runs and below."""
