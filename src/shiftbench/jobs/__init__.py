"""Jobs, the executors that run them (threads, processes, Ray), and progress."""
