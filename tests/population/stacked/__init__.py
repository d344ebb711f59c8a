"""The engine's oracle: the same algorithms over stacked members, gradients by automatic differentiation (needs torch).

One tensor holds a parameter of all P members; losses are written once and differentiated by `torch.func.grad`; random
draws are those of the native engine. In float64 on a CPU it checks the native back end step by step. It also has the
shape a GPU wants: no data-dependent control flow, static shapes, everything per member a tensor of
leading size P. Static values (rollout and minibatch sizes, network shape) have to agree within one
stack; the rest is per member.
"""
