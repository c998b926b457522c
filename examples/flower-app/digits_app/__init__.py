"""A Flower app that tunes by secret ballot and then trains."""
