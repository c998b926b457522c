"""An independent reference of how ballots are proven: Urna's own proof is compared with it."""
