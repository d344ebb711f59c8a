"""The command play: a trained agent acts in its environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import gymnasium as gym
import typer

from autorl.cli.export import chosen_model
from autorl.cli.options import Folder, say
from autorl.core.plain_text import counted
from autorl.core.types import FrozenMap, InputError
from autorl.report.reading import open_view
from autorl.store.outputs import free_output
from autorl.study.results.models import whole
from autorl.trainers.agents import AgentTrainer
from autorl.trainers.saved_state import reason_of


def play(
    folder: Folder,
    episodes: Annotated[int, typer.Option(min=1)] = 5,
    seed: int | None = None,
    proposal: int | None = None,
    video: Path | None = None,
) -> None:
    """Let a trained agent act in its environment.

    Episodes have the seeds 1, 3, 5, ... of the environment: those of tests are odd, and those of
    tuning even. It is a look at the agent, not the score of the study.

    Options:
        episodes: How many episodes.
        seed: Of which training seed; default the median by test score.
        proposal: Of which proposal; default the incumbent.
        video: Film the episodes: a new file, .mp4 or .gif.
    """
    with closing(open_view(folder)) as view:
        _, config, model = chosen_model(view, seed, proposal)
        if not isinstance(model.trainer, AgentTrainer):
            raise InputError(f"{model.name} is not an agent that acts", key="trainer")
        with whole(view.record, model.checkpoint) as on_this_machine:
            agent = model.trainer.load_model(on_this_machine)
        task, _ = view.spec.plan.parts(model.seed)
        environment = view.spec.environments[task]
    returns = []
    with _film(video) as shown:
        say(f"{model.name}, in {environment.id}")
        if video is not None:
            kwargs = FrozenMap({**environment.kwargs, "render_mode": "rgb_array"})
            environment = replace(environment, kwargs=kwargs)
        seeds = range(1, 2 * episodes, 2)
        played = model.trainer.play(agent, environment, config, seeds, shown)
        for seed_of_episode, (returned, length) in zip(seeds, played, strict=True):
            say(f"  seed {seed_of_episode}: return {returned:.6g}, {counted(length, 'step')}")
            returns.append(returned)
    say(f"  mean return {fmean(returns):.6g}")
    if video is not None:
        say(f"{video}: {counted(episodes, 'episode')}")


@contextmanager
def _film(file: Path | None) -> Iterator[Callable[[Any], None]]:
    """Give a function that films an environment."""
    if file is None:
        yield lambda env: None
        return
    free_output(file, (".mp4", ".gif"))
    try:
        import imageio.v2 as imageio

        writer = imageio.get_writer(file, fps=30)
    except (ImportError, ValueError) as error:
        message = f'needs a package that is missing: pip install "imageio[ffmpeg]" ({file.suffix})'
        raise InputError(message, key="--video") from error
    try:
        with writer:
            yield lambda env: writer.append_data(_frame(env))
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def _frame(env: gym.Env[Any, Any]) -> Any:
    """Render an environment as an image.

    Raises:
        InputError: it cannot.
    """
    try:
        frame = env.render()
    except Exception as error:  # of a renderer of somebody else: MuJoCo's without a display
        raise InputError(f"cannot be filmed: {reason_of(error)}", key="environment") from error
    if frame is None:
        raise InputError("cannot be filmed: it does not render rgb_array", key="environment")
    return frame
