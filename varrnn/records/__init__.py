"""Records: the published results of finished runs."""
