"""Algorithm 0, the federated round, on vectors and records; rounds on any oracle; what a method costs. Imports base."""
