"""Three ways into a landscape data set: the command line, Python, and plain DuckDB or pandas without this package.

The data set is built first (32 configurations x 3 tuning + 3 test seeds of an analytic task, a second or two); with a
landscape of your own, pass its folder: python landscapes.py landscapes/arlbench/dqn/CartPole-v1
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

import autorl

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


def main(folder: Path) -> None:
    print("1. command line: autorl landscape best", folder.name)
    print(command("best", folder, "--by", "mean"))

    print("2. Python")
    data = autorl.load_landscape(folder)
    chosen = data.best(seeds="tuning", by="mean")
    print(f"best on tuning seeds: configuration {chosen.config_id}, {chosen.tuning:.4f}; test seeds {chosen.test:.4f}")
    print(data.sql("SELECT seed_role, count(*) AS scores, avg(value) AS mean FROM scores GROUP BY ALL ORDER BY ALL"))
    objective = data.objective()  # any optimizer can be run on it; here the package's own
    seeds = autorl.SeedPlan(tuning=3, test=3)
    options = {"steps": objective.horizon, "direction": objective.direction, "runs": 60, "seeds": seeds}
    result = autorl.tune(objective, data.space, optimizer="tpe", **options)
    print(f"TPE with 20 configurations on the replayed landscape: test score {result.test.value:.4f}\n")

    print("3. plain DuckDB and pandas: a landscape is a folder of Parquet files")
    frame = duckdb.sql(
        f"""
        SELECT config_id, avg(eval_return) AS mean, count(*) AS seeds
        FROM '{folder}/runs.parquet' JOIN '{folder}/evals/*.parquet' USING (run_id)
        WHERE seed_role = 'tuning' AND step = (SELECT max(step) FROM '{folder}/evals/*.parquet')
        GROUP BY config_id ORDER BY mean DESC LIMIT 3
        """
    ).df()
    print(frame.to_string(index=False))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(build(Path(scratch)))
