"""Words per second, ours beside the alternatives."""
