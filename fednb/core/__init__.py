"""Algorithm 0, the federated round, and what it stands on: vectors and records. Imports base."""
