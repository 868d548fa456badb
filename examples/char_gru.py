"""A real GRU and its M2(R) twin of the same width learn Python's own documentation, character by character.

python examples/char_gru.py --steps 300
"""

import argparse
import math
import time
from pydoc_data.topics import topics

import torch
from torch import nn

import algebranets as an

WIDTH, BATCH, LENGTH = 256, 32, 64


class CharModel(nn.Module):
    """Embedding, GRU, readout; over R it is the ordinary network."""

    def __init__(self, algebra: an.Algebra) -> None:
        super().__init__()
        self.embedding = an.nn.Embedding(256, WIDTH, algebra=algebra)
        self.gru = an.nn.GRU(WIDTH, WIDTH, algebra=algebra)
        self.readout = an.nn.Linear(WIDTH, 256 * algebra.dim, algebra=algebra)  # 256 tuples, one a character
        self.norm = an.nn.TupleNorm(algebra=algebra)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        return self.norm(self.readout(self.gru(self.embedding(characters))[0]))


def train(algebra: an.Algebra, text: torch.Tensor, steps: int) -> None:
    torch.manual_seed(0)
    model = CharModel(algebra)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    start, bits = time.perf_counter(), 0.0
    for step in range(steps):
        begins = torch.randint(len(text) - LENGTH - 1, (BATCH,))
        window = torch.stack([text[b : b + LENGTH + 1] for b in begins], dim=1).long()
        loss = nn.functional.cross_entropy(model(window[:-1]).flatten(0, 1), window[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = min(step + 1, 50)
        bits += (loss.item() / math.log(2) - bits) / average
    gru = sum(p.numel() for p in model.gru.parameters())
    total = sum(p.numel() for p in model.parameters())
    seconds = time.perf_counter() - start
    print(f"{algebra.name:>4}: {gru:7,} parameters in the GRU, {total:8,} in all; {bits:.2f} bits per character "
          f"after {steps} steps, {seconds:.0f} s")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    prose = "\n".join(topics.values()).encode()
    text = torch.frombuffer(bytearray(prose), dtype=torch.uint8)
    for algebra in (an.R, an.M2R):
        train(algebra, text, steps)
