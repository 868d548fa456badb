"""Train a real GRU and one over M2(R) on Python's documentation, and generate text with both.

python examples/char_lm.py --steps 300
"""

import argparse
import math
import time

import torch
from torch import nn

import algebranets as an
from algebranets.lab.data import load

WIDTH, BATCH, LENGTH = 256, 32, 64


def train(algebra: an.Algebra, text: torch.Tensor, steps: int) -> nn.Module:
    torch.manual_seed(0)
    model = an.models.create("gru_lm", algebra=algebra, hidden_size=WIDTH)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    start, bits = time.perf_counter(), 0.0
    for step in range(steps):
        begins = torch.randint(len(text) - LENGTH - 1, (BATCH,))
        window = torch.stack([text[b : b + LENGTH + 1] for b in begins]).long()
        logits, _ = model(window[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = min(step + 1, 50)
        bits += (loss.item() / math.log(2) - bits) / average
    cost = an.account(model)
    seconds = time.perf_counter() - start
    print(f"{algebra.name:>4}: {cost.parameters:8,} parameters, {cost.multiplies:8,} multiply-adds a character; "
          f"{bits:.2f} bits per character after {steps} steps, {seconds:.0f} s")  # fmt: skip
    return model


def write(model: nn.Module, prompt: str, num_characters: int) -> None:
    print(prompt, end="")
    for piece in an.models.generate(model, prompt, num_characters, temperature=0.7, top_k=20, seed=0):
        print(piece, end="", flush=True)
    print("\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps for each model")
    parser.add_argument("--characters", type=int, default=200, help="characters to generate with each model")
    arguments = parser.parse_args()
    text = load("python-prose").train
    for algebra in (an.R, an.M2R):
        write(train(algebra, text, arguments.steps), "The ", arguments.characters)
