"""Builds the prior files of `priors/`, which come with the package.

    python benchmarks/shipped_priors.py --out priors                      # of the landscapes of this repository
    python benchmarks/shipped_priors.py --out priors --arlbench FOLDER    # and of ARLBench's tables of PPO and DQN

FOLDER has `landscapes/*_ppo.csv.gz`, `landscapes/*_dqn.csv.gz` and `LICENSE`, as they lie in the branch `experiments` of
https://github.com/automl/arlbench (`results_combined`), each compressed with gzip. The tables of SAC are the examination of
our priors: no file of them is opened.

The same sources give the same files, to the byte. ARLBench's hyperparameters have the names of Stable-Baselines3 in them.
A run without a target network has `target_update_interval: 1`, which is the same: the target is copied at every step.
What Stable-Baselines3 does not have (prioritised replay) has the names of the population engine.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from autorl.core.types import Config
from autorl.landscapes.importers import import_any
from autorl.landscapes.manifest import Manifest
from autorl.optimizers.priors.build import build_prior
from autorl.optimizers.priors.sources import read_table
from autorl.optimizers.priors.table import Prior, TaskTable, save_prior
from autorl.space import load_space

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "python benchmarks/shipped_priors.py --out priors"
OWN = ("ppo", "dqn", "sac")
"""Algorithms whose prior is made of our own landscapes."""
OF_ARLBENCH = ("ppo", "dqn")
"""Algorithms whose prior is made of ARLBench's tables; never SAC."""
SEEDS = 10  # of a table of ARLBench: none of them judges a study, so a prior takes all
NAMES = MappingProxyType(
    {
        "minibatch_size": "batch_size",
        "clip_eps": "clip_range",
        "vf_clip_eps": "clip_range_vf",
        "buffer_batch_size": "batch_size",
        "initial_epsilon": "exploration_initial_eps",
        "target_epsilon": "exploration_final_eps",
        "buffer_prio_sampling": "prioritized",
        "buffer_alpha": "priority_alpha",
        "buffer_beta": "priority_beta",
        "buffer_epsilon": "priority_eps",
    }
)
"""Names of Stable-Baselines3, or else of the population engine, by those of ARLBench that differ."""


def own_prior(algorithm: str, landscapes: Path = ROOT / "landscapes") -> Prior:
    """The prior of this repository's landscapes of an algorithm."""
    files = sorted(landscapes.glob(f"autorl/{algorithm}/*/manifest.json"))
    return build_prior(
        [read_table(file.parent) for file in files],
        load_space(f"sb3/{algorithm}"),
        description=f"{algorithm.upper()} of autorl's population engine on its own environments",
        built_with=COMMAND,
    )


def arlbench_tables(files: Sequence[Path]) -> list[TaskTable]:
    """Tables of ARLBench's files, under the names of Stable-Baselines3.

    The hash of a table is that of the file as it was published, compressed.
    """
    tables = []
    with tempfile.TemporaryDirectory() as scratch:
        for file in files:
            (manifest,) = import_any(file, scratch, tuning_seeds=SEEDS)
            table = read_table(Path(scratch) / manifest.id)
            configs = tuple(renamed(config) for config in table.configs)
            tables.append(replace(table, configs=configs, sha256=_source_hash(manifest)))
    return tables


def arlbench_prior(algorithm: str, folder: Path) -> Prior:
    """The prior of ARLBench's tables of an algorithm.

    Raises:
        ValueError: it is none of `OF_ARLBENCH`.
    """
    if algorithm not in OF_ARLBENCH:
        raise ValueError(f"no prior is made of ARLBench's tables of {algorithm}")
    files = sorted((folder / "landscapes").glob(f"*_{algorithm}.csv.gz"))
    return build_prior(
        arlbench_tables(files),
        load_space(f"sb3/{algorithm}"),
        description=f"{algorithm.upper()} of ARLBench on {len(files)} environments, {SEEDS} seeds each",
        notice=(folder / "LICENSE").read_text(encoding="utf-8").strip() + "\n",
        built_with=f"{COMMAND} --arlbench FOLDER",
    )


def renamed(config: Mapping[str, object]) -> Config:
    """A configuration of ARLBench under the names of Stable-Baselines3."""
    values = {NAMES.get(name, name): value for name, value in config.items()}
    if values.get("use_target_network") is False:
        values["target_update_interval"] = 1
    return Config(values)


def _source_hash(manifest: Manifest) -> str:
    return str(manifest.sources[0]["sha256"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the prior files")
    parser.add_argument("--arlbench", type=Path, help="folder with ARLBench's tables and licence")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    priors = {f"autorl-{algorithm}": own_prior(algorithm) for algorithm in OWN}
    if arguments.arlbench is not None:
        for algorithm in OF_ARLBENCH:
            priors[f"arlbench-{algorithm}"] = arlbench_prior(algorithm, arguments.arlbench)
    for name, prior in priors.items():
        file = arguments.out / f"{name}.json"
        save_prior(prior, file, replace=True)
        print(f"{file}: {len(prior.tasks)} tasks, {file.stat().st_size:,} bytes, {prior.sha256}")


if __name__ == "__main__":
    main()
