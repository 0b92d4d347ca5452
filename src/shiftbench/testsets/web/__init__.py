"""The web pages for annotators, reviewers and leads, rendered on the server, with little JavaScript.

Each module serves the pages of one role; ``context`` and ``security`` are what all of them share. A page checks who
asks, calls functions of ``testsets`` and renders their answer: rules about tasks and answers do not belong here.
"""
