"""Follow-up experiments of 004: what explains the accuracies on the new test set?

One module per question: class balance and review, hard images and people, cross-validation, a discriminator of the two
sets. They read frozen sets and stored predictions, and return tables.
"""
