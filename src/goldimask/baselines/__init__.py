"""One published method per file: its selector and/or weigher. Importing this registers them."""

from goldimask.baselines import agdo as agdo
from goldimask.baselines import budget as budget
from goldimask.baselines import cart as cart
from goldimask.baselines import dro as dro
from goldimask.baselines import gift as gift
from goldimask.baselines import lift as lift
