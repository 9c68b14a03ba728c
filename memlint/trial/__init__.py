"""`memlint confirm`: run a flagged function as written and as repaired, and say what the repair saves."""
