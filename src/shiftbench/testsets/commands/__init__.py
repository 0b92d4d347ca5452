"""``shiftbench testset`` and ``shiftbench data duplicates``, which ``shiftbench.workshop_commands`` lists.

A command reads its options, calls one function of ``testsets`` and prints the answer as text or JSON. Imports of that
function stand inside the command, so that ``--help`` stays quick.
"""
