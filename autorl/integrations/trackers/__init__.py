"""Studies in TensorBoard, MLflow and Weights & Biases.

In a study file `callbacks: [tensorboard]`, or `callbacks: [{mlflow: {tracking_uri: ...}}]`; in a
program `tune(..., callbacks=[WandbTracker(project="ppo")])`. The page docs/trackers.md says what
they record.
"""

from autorl.integrations.trackers.mlflow import MLflowTracker
from autorl.integrations.trackers.tensorboard import TensorBoardTracker
from autorl.integrations.trackers.wandb import WandbTracker

__all__ = ["MLflowTracker", "TensorBoardTracker", "WandbTracker"]
