"""Files: paths and URLs, atomic writes, locks, the cache folder, object stores."""
