"""Reading trained networks: latent codes, searches and retrievals, and what attention costs."""
