"""The tiny world: programmatic reasoning tasks, a tokenizer and a small pretrained model."""

from goldimask.tiny.problem import Problem, Split, Task
from goldimask.tiny.tasks import CORPORA, TASKS, corpus, corpus_rows, test_set

__all__ = ["CORPORA", "TASKS", "Problem", "Split", "Task", "corpus", "corpus_rows", "test_set"]
