"""Fine-tuning of a user's own model: ``sb.harden`` and ``shiftbench harden finetune``.

``model`` opens the model and its images, ``plan`` fits two trainings (with the augmentation and without it) and their
evaluation into a time, and ``run`` compares them. Training itself is that of ``hardening.training``.
"""
