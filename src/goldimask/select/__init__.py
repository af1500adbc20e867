"""Which candidates to reveal: maximisers of the reveal objective, and the controls."""

from goldimask.select import reveal as reveal  # registers the selectors
