"""What tests use, ours and those of plugins: a fake clock, fake sockets, processes, a pytest plugin."""
