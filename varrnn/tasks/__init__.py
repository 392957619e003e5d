"""The tasks: data, network, loss and metrics of each. Nothing here writes files."""
