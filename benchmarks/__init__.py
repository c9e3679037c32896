"""Measures the library, on its own and beside its peers: `python -m benchmarks`."""
