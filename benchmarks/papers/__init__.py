"""What only a study of the four papers needs. It imports `urna`; `urna` never imports it."""
