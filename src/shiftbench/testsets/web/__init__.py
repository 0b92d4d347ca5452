"""The web pages for annotators, reviewers and leads, rendered on the server, with little JavaScript."""
