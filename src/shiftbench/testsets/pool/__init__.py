"""The pool: pictures by content, candidates and references, and where they come from."""
