"""Random numbers that depend on what is shifted, and on nothing else.

A stream of numbers belongs to one (seed, image id, shift, ...) and is named by the BLAKE2b hash of those, so
that the order of the images, the batch size, the process and the machine do not matter. No global random
state is read or changed.
"""

from __future__ import annotations

import hashlib
import json

SEED_SCHEME = "1"
_MASK = (1 << 64) - 1


def derive_key(seed: int, *parts: str | int | float) -> tuple[int, int]:
    """Two 64-bit words for one stream of random numbers.

    The parts are written as JSON before hashing, so ("a", "bc") and ("ab", "c") give different streams and
    1 and 1.0 the same.

    >>> derive_key(0, "fog", 3, "cat.jpg") == derive_key(0, "fog", 3.0, "cat.jpg")
    True
    >>> derive_key(0, "fog", 3, "cat.jpg") == derive_key(1, "fog", 3, "cat.jpg")
    False
    """
    plain = [float(part) if isinstance(part, (int, float)) else str(part) for part in parts]
    text = json.dumps([SEED_SCHEME, int(seed), *plain], ensure_ascii=True, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode("ascii"), digest_size=16, person=b"shiftbench").digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def derive_seed(seed: int, *parts: str | int | float) -> int:
    """One 32-bit seed for a library that wants a plain integer.

    >>> 0 <= derive_seed(0, "shuffle") < 2**32
    True
    """
    return derive_key(seed, *parts)[0] & 0xFFFFFFFF


def random_word(key: tuple[int, int], counter: int) -> int:
    """The counter-th 64-bit word of a stream: SplitMix64's mixing with a second key half added midway.

    Counter-based, hence any word can be computed without those before it. The compiled kernels compute the
    same words.

    >>> random_word((1, 2), 3) == random_word((1, 2), 3) != random_word((1, 2), 4)
    True
    """
    z = (key[0] + counter * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 + key[1]) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
