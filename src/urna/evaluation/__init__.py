"""What studies of Urna need and no search imports: baselines, simulations, figures."""
