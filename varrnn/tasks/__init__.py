"""What a task brings to the one training loop: batches, loss and metric."""
