"""Other libraries, each behind a border of its own; imported where they are run."""
