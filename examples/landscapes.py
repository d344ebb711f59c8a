"""Three ways into a landscape data set: the command line, Python, and plain DuckDB or pandas without this package.

    python landscapes.py                                      # the shipped autorl/dqn/CartPole-v1
    python landscapes.py landscapes/arlbench/dqn/CartPole-v1  # the folder of another one

Where nothing is shipped (an installation without data), a small one is built first: 32 configurations x 3 tuning + 3
test seeds of an analytic task, a second or two.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

import autorl
from autorl.landscapes import find_landscape

SHIPPED = "autorl/dqn/CartPole-v1"
BUILD = """
name: bowl
trainer: {name: synthetic, kwargs: {optimum: {x: 0.7, rate: 0.2}, noise: 0.1, interaction: 0.05}}
space:
  hyperparameters:
    x: {type: float, lower: 0.0, upper: 1.0}
    rate: {type: float, lower: 1e-4, upper: 1.0, scale: log}
fidelity: {steps: 100, evaluations: 5}
optimizer: sobol
budget: {configurations: 32}
seeds: {tuning: 3, test: 3}
executor: {name: in_process}
"""


def command(*arguments: object) -> str:
    """The output of `autorl landscape ...`."""
    line = [sys.executable, "-m", "autorl", "landscape", *map(str, arguments)]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def build(folder: Path) -> Path:
    """A landscape made from a build file, as `autorl landscape build` does it."""
    (folder / "bowl.yaml").write_text(BUILD)
    options = ("--out", folder / "landscapes", "--study", folder / "study", "--quiet")
    command("build", folder / "bowl.yaml", "--id", "example/synthetic/bowl", *options)
    return folder / "landscapes/example/synthetic/bowl"


def replay(data: autorl.Landscape) -> None:
    """Any optimizer runs on the data in seconds; here the package's own."""
    objective = data.objective()  # recorded runs: the nearest configuration answers
    seeds = autorl.SeedPlan(tuning=3, test=3)
    options = {
        "steps": objective.horizon,
        "direction": objective.direction,
        "runs": 60,
        "seeds": seeds,
    }
    result = autorl.tune(objective, data.space, optimizer="tpe", **options)
    print(
        f"TPE with 20 configurations on the replayed landscape: test score {result.test.value:.4f}"
    )
    if importlib.util.find_spec("sklearn"):  # predicted runs: pip install "autorl[bo]"
        surrogate = data.surrogate(
            force=True
        )  # without `force`, one that ranks too badly is refused
        print(
            f"a surrogate of it has an {surrogate.quality}: {surrogate(result.incumbent.config, seed=7):.4f}"
        )
    print()


def main(folder: Path) -> None:
    print("1. command line: autorl landscape best", folder.name)
    print(command("best", folder, "--by", "mean"))

    print("2. Python")
    data = autorl.load_landscape(folder)
    chosen = data.best(seeds="tuning", by="mean")
    print(
        f"best on tuning seeds: configuration {chosen.config_id}, {chosen.tuning:.4f}; test seeds {chosen.test:.4f}"
    )
    print(
        data.sql(
            "SELECT seed_role, count(*) AS scores, avg(value) AS mean FROM scores GROUP BY ALL ORDER BY ALL"
        )
    )
    replay(data)

    print("3. plain DuckDB and pandas: a landscape is a folder of Parquet files")
    frame = duckdb.sql(
        f"""
        SELECT config_id, avg(eval_return) AS mean, count(*) AS seeds
        FROM '{folder}/runs.parquet' JOIN '{folder}/evals/*.parquet' USING (run_id)
        WHERE seed_role = 'tuning' AND step = (SELECT max(step) FROM '{folder}/evals/*.parquet')
        GROUP BY config_id ORDER BY mean DESC LIMIT 3
        """
    ).df()  # a pandas frame; with pyarrow, pandas.read_parquet(folder / "runs.parquet") reads a table too
    print(frame.to_string(index=False))


if __name__ == "__main__":
    found = Path(sys.argv[1]) if len(sys.argv) > 1 else find_landscape(SHIPPED)
    if found is not None:
        main(found)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(build(Path(scratch)))
