"""The .npy format."""
