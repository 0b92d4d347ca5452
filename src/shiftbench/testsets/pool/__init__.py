"""The pool: candidate and reference images, stored by content, and their sources."""
