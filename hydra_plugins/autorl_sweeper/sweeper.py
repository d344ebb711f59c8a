"""The plug-in that Hydra finds.

What it does is in `autorl.integrations.hydra_sweeper`, imported when a sweep begins.
"""

# Without `from __future__ import annotations`: Hydra executes this module without an entry in
# `sys.modules`, where a dataclass looks for the names that its annotations stand for.
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.errors import CompactHydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class AutorlSweeperConf:
    """The section `hydra.sweeper`.

    docs/coming-from-hydra-and-optuna.md says what each key is. Keys after `study` are those of
    hypersweeper.
    """

    _target_: str = "hydra_plugins.autorl_sweeper.sweeper.AutorlSweeper"
    _recursive_: bool = False
    _convert_: str = "all"
    search_space: Any = None
    params: Any = None
    n_trials: int | None = None
    n_jobs: int | None = None
    direction: Any = None
    optimizer: Any = None
    tuning_seeds: Any = None
    test_seeds: Any = 10
    seed_key: str | None = "auto"
    seed: int = 0
    steps: int | None = None
    callbacks: Any = None
    study: dict[str, Any] = field(default_factory=dict)
    budget_variable: str | None = None
    loading_variable: str | None = None
    saving_variable: str | None = None
    budget: Any = None
    resume: Any = False
    sweeper_kwargs: dict[str, Any] = field(default_factory=dict)


ConfigStore.instance().store(
    group="hydra/sweeper", name="autorl", node=AutorlSweeperConf, provider="autorl"
)


class AutorlSweeper(Sweeper):  # type: ignore[misc]  # no types of Hydra
    """Searches with a study of autorl.

    Args:
        options: the section `hydra.sweeper`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra knows of the application."""
        self.hydra_context = hydra_context
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Search, test the incumbent, and return what `optimization_results.yaml` holds."""
        from autorl.core.types import AutorlError
        from autorl.integrations.hydra_sweeper import run_sweep

        try:
            return run_sweep(self, self._options, arguments)
        except AutorlError as error:
            raise CompactHydraException(f"autorl: {error}") from error
