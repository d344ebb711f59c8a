"""Trains PufferLib's PPO and prints its numbers as JSON, a line for each update that logs."""

import json
import sys

import torch
from pufferlib import pufferl

name = sys.argv.pop(1)
args = pufferl.load_config(name)
torch.manual_seed(args["train"]["seed"])
environments = pufferl.load_env(name, args)
policy = pufferl.load_policy(args, environments)
trainer = pufferl.PuffeRL({**args["train"], "env": name}, environments, policy)
trainer.print_dashboard = lambda *arguments, **named: None
while trainer.global_step < args["train"]["total_timesteps"]:
    trainer.evaluate()
    logs = trainer.train()
    if logs:
        print(json.dumps(logs, default=str), flush=True)
trainer.close()
