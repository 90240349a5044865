"""Child processes that end with their parent, messages and memory that they share. Imports base."""
