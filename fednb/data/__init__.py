"""Where the samples come from (`sources`) and which client holds them (`partition`). Imports base."""
