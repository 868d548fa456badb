"""A transformer block with RMS norms and SwiGLU in plain torch, which cuts features into gates and values."""

import torch
from torch import nn


class Gate(nn.Module):
    def forward(self, gate, value):
        return nn.functional.silu(gate) * value


class SwiGLU(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, 2 * hidden, bias=False)
        self.gate = Gate()
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate, value = torch.chunk(self.up(x), 2, dim=-1)
        return self.down(self.gate(gate, value))


class Block(nn.Module):
    def __init__(self, width, num_heads, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads, bias=False, batch_first=True)
        self.feed_forward = SwiGLU(width, hidden)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed_forward(self.norm2(x))


def make():
    return Block(32, 2, 48)


def example():
    return torch.randn(2, 5, 32)
