"""Methods: parts that fill in stages of the round, the catalogue, sums, cards. Imports core, filters and base."""
