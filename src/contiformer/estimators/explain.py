"""What a model looks at: states and attention weights over continuous time, as arrays and as a picture."""
