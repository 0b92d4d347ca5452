"""Follow-up experiments of 004: what explains the accuracies on the new test set?"""
