"""Synthetic worlds whose truth is known: row id → columns, in NumPy, the same rows however they are partitioned."""
