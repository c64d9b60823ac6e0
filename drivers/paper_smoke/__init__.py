"""The whole chain of the papers in small, with scripted models: a rehearsal, not a result."""
