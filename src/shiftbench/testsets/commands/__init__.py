"""``shiftbench testset`` and ``shiftbench data duplicates``, which ``shiftbench.workshop_commands`` lists."""
