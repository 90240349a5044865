"""The explorers in a real browser: `make test-browser`. A package, because tests have another conftest beside it."""
