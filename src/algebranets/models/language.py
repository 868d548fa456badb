"""What one does with a trained language model: measure it on a text, and let it write.

Both models are called as ``logits, state = model(tokens, state)``; ``model.cache(state)`` is the state in which single
tokens are decoded, ``model.vocab_size`` how many tokens there are.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from algebranets import checks
from algebranets.nn.mode import evaluating


def generate(
    model: nn.Module,
    prompt: str,
    num_tokens: int = 200,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> Iterator[str]:
    """Text that goes on behind ``prompt``, piece by piece as it is made: one piece a character.

    The model's vocabulary must be bytes; they are decoded as UTF-8, and what is no UTF-8 comes out as the replacement
    character.

    >>> import algebranets as an
    >>> model = an.models.create("gru_lm", algebra="C", hidden_size=16)
    >>> for piece in an.models.generate(model, "AlgebraNets", num_tokens=5, top_k=20, seed=0):
    ...     print(piece, end="", flush=True)  # doctest: +SKIP
    """
    if model.vocab_size != 256:
        raise ValueError(f"generate takes a model of bytes, vocab_size=256; got {model.vocab_size}. sample takes any.")
    tokens = torch.tensor([list(prompt.encode())], dtype=torch.long)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    stream = sample(model, tokens, num_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    with closing(stream):
        for token in stream:
            yield from decoder.decode(bytes([int(token)]))
    yield from decoder.decode(b"", final=True)


@torch.no_grad()
def sample(
    model: nn.Module,
    tokens: Int[Tensor, "batch time"],
    num_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> Generator[Int[Tensor, " batch"], None, None]:
    """The next tokens behind each row of ``tokens``, one a step.

    ``temperature`` 0 takes the likeliest; ``top_k`` keeps that many candidates; ``top_p`` keeps the likeliest ones that
    together have that probability. The same ``seed`` draws the same tokens.
    """
    _check_sampling(num_tokens, temperature, top_k, top_p, seed)
    _check_tokens(tokens, int(model.vocab_size))  # type: ignore[arg-type]
    device = next(model.parameters()).device
    generator = torch.Generator(device)
    generator.manual_seed(seed) if seed is not None else generator.seed()
    draw = partial(_draw, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
    with evaluating(model):
        decoder = Decoder(model, tokens.to(device), draw, generator)
        yield decoder.token.clone()
        for _ in range(num_tokens - 1):
            yield decoder().clone()


def likeliest(logits: Float[Tensor, "batch vocab"]) -> Int[Tensor, " batch"]:
    """The token of the greatest logit."""
    return logits.argmax(-1)


class Decoder:
    """Goes on behind a prompt, a token a call; on a GPU the call replays a CUDA graph.

    ``token`` is what was drawn last, for each row of the prompt, and ``state`` what the model goes on from: both stay
    where they are, and a call writes the next ones into them. ``draw`` makes tokens of logits; if it draws from a
    ``generator``, that must be given too. The model should be in evaluation mode.

    >>> import torch, algebranets as an
    >>> model = an.models.create("gru_lm", algebra="C", hidden_size=16)
    >>> decoder = Decoder(model, torch.tensor([[1, 2, 3]]))
    >>> text = [int(decoder.token), *(int(decoder()) for _ in range(5))]
    """

    @torch.no_grad()
    def __init__(
        self,
        model: nn.Module,
        tokens: Int[Tensor, "batch time"],
        draw: Callable[[Tensor], Tensor] = likeliest,
        generator: torch.Generator | None = None,
    ) -> None:
        self.model, self.draw, self.generator = model, draw, generator
        logits, state = model(tokens)
        self.state: Any = model.cache(state)  # type: ignore[operator]
        self.token: Int[Tensor, " batch"] = draw(logits[:, -1])
        self._is_warm = False
        self._graph: torch.cuda.CUDAGraph | None = None

    @torch.no_grad()
    def __call__(self) -> Int[Tensor, " batch"]:
        """The next token of each row: `token`, which the next call overwrites."""
        if self._is_warm and self.token.is_cuda and self._graph is None:
            self._graph = self._capture()
        if self._graph is not None:
            self._graph.replay()
        else:  # the first step compiles and allocates what may not be compiled or allocated during capture
            self._step()
            self._is_warm = True
        return self.token

    def _step(self) -> None:
        logits, state = self.model(self.token[:, None], self.state)
        if isinstance(state, Tensor):  # caches have been written into
            self.state.copy_(state)
        self.token.copy_(self.draw(logits[:, -1]))

    def _capture(self) -> torch.cuda.CUDAGraph:
        """The step as a graph; nothing runs yet."""
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:
            graph.register_generator_state(self.generator)
        with torch.cuda.device_of(self.token), torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            self._step()
        return graph


@torch.no_grad()
def bits_per_character(model: nn.Module, text: Int[Tensor, " time"], segment: int = 512, **options: Any) -> float:
    """How many bits the model needs for each character of ``text`` but the first, its state carried from end to end.

    ``options`` go to the model, such as ``window=4608`` for a Transformer-XL.
    """
    if text.dim() != 1 or len(text) < 2 or checks.whole("segment", segment) < 1:
        raise ValueError(
            "text must be one row of at least two tokens and segment at least 1; "
            f"got shape {tuple(text.shape)} and segment={segment}."
        )
    device = next(model.parameters()).device
    total, state = 0.0, None
    with evaluating(model):
        for begin in range(0, len(text) - 1, segment):
            window = text[begin : begin + segment + 1].long().to(device)
            logits, state = model(window[None, :-1], state, **options)
            total += F.cross_entropy(logits[0].float(), window[1:], reduction="sum").item()
    return total / (len(text) - 1) / math.log(2)


def _draw(
    logits: Float[Tensor, "batch vocab"],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator,
) -> Int[Tensor, " batch"]:
    if temperature == 0:
        return likeliest(logits)
    logits, order = (logits.float() if logits.dtype.itemsize < 4 else logits).sort(dim=-1, descending=True)
    least = torch.finfo(logits.dtype).tiny  # the inverse, by which a GPU multiplies, is not infinite
    # The largest logit becomes 0, so that a low temperature keeps it and turns all others into -inf.
    logits = (logits - logits[:, :1]) / max(temperature, least)
    if top_k is not None:
        logits[:, top_k:] = -math.inf
    probabilities = logits.softmax(-1)
    if top_p is not None:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= max(top_p, least), 0)
    # What torch.multinomial does, less a check that the GPU would be waited for: of clocks with these rates, the one
    # that strikes first.
    clocks = torch.empty_like(probabilities).exponential_(generator=generator)
    place = (probabilities / clocks).argmax(-1, keepdim=True)
    return order.gather(1, place)[:, 0]


def _check_tokens(tokens: Tensor, vocab_size: int) -> None:
    if tokens.dim() != 2 or not tokens.numel():
        raise ValueError(f"the prompt must hold at least one token; got shape {tuple(tokens.shape)}.")
    if not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab_size:
        raise ValueError(
            f"tokens must lie between 0 and {vocab_size - 1}; got some from {tokens.min()} to {tokens.max()}."
        )


def _check_sampling(
    num_tokens: int, temperature: float, top_k: int | None, top_p: float | None, seed: int | None
) -> None:
    checks.whole("num_tokens", num_tokens, least=1)
    checks.positive("temperature", temperature, or_zero=True)
    if top_k is not None:
        checks.whole("top_k", top_k, least=1)
    if top_p is not None and not checks.share("top_p", top_p):
        raise ValueError("top_p must be above 0, or no candidate is left; got 0. None keeps every candidate.")
    if seed is not None and not -(2**63) <= checks.whole("seed", seed) < 2**64:
        raise ValueError(f"seed must be a number of 64 bits; got {seed}.")
