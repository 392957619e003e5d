"""What a trained model is uncertain about."""
