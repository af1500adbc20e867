"""Which candidates to reveal: maximisers of the reveal objective, and the controls."""
