"""What is trained: network, loss and metrics of each task. Nothing here writes files."""
