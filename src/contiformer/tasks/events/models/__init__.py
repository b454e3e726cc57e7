"""Models of event sequences as their papers define them."""
