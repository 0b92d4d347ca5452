"""Attacks: the smallest change of an image that makes a classifier fail, searched along its gradients.

>>> from shiftbench.shifts import ATTACKS
>>> sorted(ATTACKS)[-2:]
['pgd.linf.eps0.5', 'pgd.linf.eps2']
"""
