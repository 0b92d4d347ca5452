"""The report as one page: what it says (JSON), and the file or the live viewer that shows it.

``report_data`` holds what several ``sections`` need, each of which builds its part of the ``payload``; ``write`` makes
one HTML file of it, ``viewer`` and ``server`` show it live. Numbers are computed by ``metrics``, ``studies`` and the
other modules of ``reports``: the page arranges them.
"""
