"""Spaces nobody tuned the vote on: recorders, recordings' format, and a runner of votes."""
