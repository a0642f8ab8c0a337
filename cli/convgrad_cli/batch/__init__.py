"""Many jobs in one process: a manifest, what its patterns match, what is up to date, and the run."""
