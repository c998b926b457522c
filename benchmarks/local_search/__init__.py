"""Every claim of speed about local search, measured beside its peer in the same run."""
