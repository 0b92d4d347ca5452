"""Files and locations: paths and URLs, atomic writes, locks, the cache, downloads, hashes, TOML and notebook HTML.

Every other package may import these modules, and they import nothing of shiftbench but its errors and array types.
``paths`` makes a path and a URL in an object store look alike, ``atomic`` writes a file completely or not at all, and
``hashing`` and ``code_state`` make the digests that keys of results are built from: their values must never change.
"""
