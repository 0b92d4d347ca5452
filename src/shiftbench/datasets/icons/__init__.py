"""Icons-50: 50 broad classes of icons, drawn by many vendors in several versions.

The original is read as it was released. As its images belong to the vendors and are not in any registry, it can also
be rebuilt from the icons in registry packages: the same classes, names and file layout, newer drawings.
"""
