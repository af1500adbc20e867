"""The tiny world: programmatic reasoning tasks, a tokenizer and a small model that knows a little of them."""

from goldimask.tiny.problem import Problem, Split, Task
from goldimask.tiny.tasks import CORPORA, TASKS, corpus, test_set

__all__ = ["CORPORA", "TASKS", "Problem", "Split", "Task", "corpus", "test_set"]
