"""Runs that end badly, each in a process of its own: `python killed.py MODEL FOLDER POINT...`.

The interpreter imports everything once and forks for each point, so that a kill costs a fork.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from pathlib import Path


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(point: str) -> None:
    """Make the second save of this process end at `point`."""
    import torch

    from goldimask import jobs
    from goldimask.train import trainer

    second = {"on": False}
    write = trainer.GoldiTrainer._write_checkpoint

    def counted(self, *args, **kwargs):
        second["on"] = self.state.global_step > 4
        if second["on"] and point == "full-disk":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        return write(self, *args, **kwargs)

    trainer.GoldiTrainer._write_checkpoint = counted
    if point == "half-a-file":
        save = torch.save

        def half(obj, file, *args, **kwargs):
            save(obj, file, *args, **kwargs)
            if second["on"]:
                os.truncate(file, os.path.getsize(file) // 2)
                die()

        torch.save = half
    if point in ("before-the-seal", "spare"):
        seal = jobs.seal
        jobs.seal = lambda folder: die() if second["on"] else seal(folder)
    if point == "before-the-name":
        replace = os.replace

        def named(source, target):
            if second["on"] and "checkpoint-8" in str(target) and Path(source).is_dir():
                die()
            replace(source, target)

        os.replace = named
    if point == "random":
        save_state = trainer.GoldiTrainer._save_checkpoint

        def timed(self, *args, **kwargs):
            if self.state.global_step > 4:
                threading.Timer(int.from_bytes(os.urandom(1)) / 255 * 0.05, die).start()
            return save_state(self, *args, **kwargs)

        trainer.GoldiTrainer._save_checkpoint = timed
    if point == "before-a-checkpoint":
        trainer.GoldiTrainer._write_checkpoint = die
    if point.startswith("SIG"):
        number = getattr(signal, point.removesuffix("-twice"))
        # whoever started the tests may have had it ignored (nohup, a shell's background job)
        signal.signal(number, signal.default_int_handler if point == "SIGINT" else signal.SIG_DFL)
        loss = trainer.GoldiTrainer.compute_loss

        def signalled(self, *args, **kwargs):
            if self.state.global_step == 5:
                for _ in range(1 + point.endswith("-twice")):
                    os.kill(os.getpid(), number)
            return loss(self, *args, **kwargs)

        trainer.GoldiTrainer.compute_loss = signalled


def main(model: str, folder: str, points: list[str]) -> None:
    import goldimask.train.attention_layer  # noqa: F401  imported before the fork
    from goldimask.errors import GoldimaskError
    from goldimask.train.run import train
    from invariant.runs import LONG, recipe

    for point in points:
        child = os.fork()
        if child == 0:
            arrange(point)
            made = recipe(Path(model), Path(folder) / point, **LONG)
            try:
                train(made)
            except GoldimaskError as error:
                (Path(folder) / f"{point}.txt").write_text(str(error))
                os._exit(error.exit_code)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(point, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
