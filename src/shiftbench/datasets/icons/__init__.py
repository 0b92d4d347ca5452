"""Icons-50: 50 broad classes of icons, drawn by many vendors in several versions.

The original is read as it was released. As its pictures belong to the vendors and are not in any registry, the set can
also be rebuilt from the icons that registry packages carry: the same classes, names and file layout, newer drawings.
"""
