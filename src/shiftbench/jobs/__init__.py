"""Work that can be spread: jobs, the executors that run them (threads, processes, Ray), and progress."""
