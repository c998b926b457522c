"""The paper's evaluation: losses once, votes over them as often as one likes."""
