"""Trains schedules again.

A proposal's chain is trained from scratch, or a study file is made of the schedule it amounts to. A
chain that is trained again on one of its own seeds has the same segments, configurations and random
streams (those of exploits are functions of seed, member and step), and the chains of agents that
were averaged with it are trained beside it: the chain gives the recorded curve to the last bit. On
any other seed it is the same schedule on other luck.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import yaml

from autorl.core.masking import variables_by_name
from autorl.core.plain_values import plain
from autorl.core.types import Config, Outcome, ProposalId, Proposed, SeedRole
from autorl.executors.worker import Load
from autorl.space import Dumper
from autorl.statistics.evaluation import Curve
from autorl.store import Store
from autorl.store.events import ProposalMade
from autorl.study.journal import Journal
from autorl.study.lineage import Lineage
from autorl.study.setup import local_executor_name, make_named_executor
from autorl.study.spec import Spec
from autorl.study.work import Work

_POLL_SECONDS = 0.5


def retrain(
    spec: Spec,
    lineage: Lineage,
    load: Load,
    proposal: ProposalId,
    seeds: Iterable[int],
    role: SeedRole = "tuning",
) -> dict[int, Curve]:
    """Train the chain of a proposal from step 0 again.

    Nothing is recorded. `lineage` and `load` are those of the study the proposal is of.

    Returns:
        Its learning curves by seed.
    """
    trained_seeds = tuple(seeds)
    with closing(Store.in_memory()) as store:
        work = Work(spec, Journal(store), lineage, spec.judge())
        for link in lineage.ancestors(proposal):
            config_hash = spec.search_space.config_hash(lineage[link].config)
            # The table of runs takes the configuration from that of proposals.
            store.append(ProposalMade(Proposed(link, lineage[link]), config_hash))
        with closing(make_named_executor(local_executor_name(spec), spec, load)) as pool:
            while True:
                for seed in trained_seeds:
                    work.request(proposal, seed, None, role)
                pool.submit(work.drain())
                if not work.in_flight:
                    break
                for message in pool.poll(_POLL_SECONDS):
                    if isinstance(message, Outcome):
                        work.record(message)
        return {seed: work.curve(proposal, seed) for seed in trained_seeds}


def same(one: Curve, other: Curve) -> bool:
    """Say whether two learning curves agree to the last bit.

    Their costs are not compared.
    """
    return _bits(one) == _bits(other)


def _bits(curve: Curve) -> tuple[object, ...]:
    metrics = tuple(
        # By their digits, because NaN differs from itself and 0.0 equals -0.0.
        tuple((name, float(metrics[name]).hex()) for name in sorted(metrics))
        for metrics in curve.metrics
    )
    return curve.steps, metrics, curve.status


def schedule_study(spec: Spec, schedule: Sequence[tuple[int, Config]]) -> str:
    """Write a study file, as YAML, that trains a schedule.

    It has the tuning and test seeds of `spec`, one chain, and no search.
    """
    document = schedule_document(spec, schedule)
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, width=110))


def schedule_document(spec: Spec, schedule: Sequence[tuple[int, Config]]) -> dict[str, Any]:
    """Return the content of `schedule_study`."""
    document = yaml.safe_load(spec.freeze())
    document["name"] = f"{spec.name}-schedule"
    document["optimizer"] = {
        "name": "schedule",
        "schedule": {step: plain(config) for step, config in schedule},
    }
    # One full run of each tuning seed: the chain, and nothing to search with.
    document["budget"] = {"runs": len(spec.plan.tuning)}
    for key in ("warm_start", "landscape", "path", "storage"):
        document.pop(key, None)
    shared: dict[str, Any] = variables_by_name(document)
    return shared
