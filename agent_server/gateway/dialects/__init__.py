"""The protocols that agents speak, one a module: what they ask and are answered, on the wire."""
