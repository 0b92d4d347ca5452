"""Fine-tuning of a user's own model: ``sb.harden`` and ``shiftbench harden finetune``."""
