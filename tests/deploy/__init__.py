"""What ships for being deployed."""
