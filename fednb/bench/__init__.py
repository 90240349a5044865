"""How fast it is, on this machine: `fednb bench engines | filters | peers | scale`. Nothing here is asserted."""
