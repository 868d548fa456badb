"""Text generation with a language model, and its bits per character on a text.

A language model is called as ``logits, state = model(tokens, state)``. ``model.cache(state)`` is the state for
generating one token at a time, and ``model.vocab_size`` is the number of different tokens.
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
    """Continue a text, character by character.

    Bytes that are not UTF-8 become the replacement character.

    Args:
        model: A language model whose tokens are bytes (``vocab_size=256``).
        prompt: The text to continue.
        num_tokens: How many bytes to generate.
        temperature: The divisor of the logits. Low temperatures prefer likely tokens; 0 takes the most likely one.
        top_k: How many of the most likely tokens are candidates; None for all.
        top_p: Candidates are the most likely tokens whose probabilities add up to this number; None for all.
        seed: The seed of the random numbers. The same seed draws the same tokens. None for a random seed.

    >>> import algebranets as an
    >>> model = an.models.create("gru_lm", algebra="C", hidden_size=16)
    >>> for piece in an.models.generate(model, "AlgebraNets", num_tokens=5, top_k=20, seed=0):
    ...     print(piece, end="", flush=True)  # doctest: +SKIP
    """
    if model.vocab_size != 256:
        raise ValueError(
            f"generate needs a model of bytes, vocab_size=256; got {model.vocab_size}. Use sample instead."
        )
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
    """Continue a batch of token sequences. Each item is the next token of each row.

    Args:
        model: A language model.
        tokens: The sequences to continue, at least one token each.
        num_tokens: How many tokens to generate for each row.
        temperature: The divisor of the logits. Low temperatures prefer likely tokens; 0 takes the most likely one.
        top_k: How many of the most likely tokens are candidates; None for all.
        top_p: Candidates are the most likely tokens whose probabilities add up to this number; None for all.
        seed: The seed of the random numbers. The same seed draws the same tokens. None for a random seed.

    >>> import algebranets as an
    >>> model = an.models.create("gru_lm", algebra="C", hidden_size=16, vocab_size=10)
    >>> tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    >>> torch.stack(list(an.models.sample(model, tokens, num_tokens=5, temperature=0)), dim=1).shape
    torch.Size([2, 5])
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


def most_likely(logits: Float[Tensor, "batch vocab"]) -> Int[Tensor, " batch"]:
    """The most likely token of each row."""
    return logits.argmax(-1)


class Decoder:
    """Continues a batch of token sequences by one token with each call. On a GPU, a call replays a CUDA graph.

    ``token`` holds the last token of each row, and ``state`` the model's state. Each call overwrites both in place. The
    model should be in evaluation mode.

    Args:
        model: A language model.
        tokens: The sequences to continue, at least one token each.
        draw: A function from logits (batch, vocab) to tokens (batch,). By default it takes the most likely tokens.
        generator: The random number generator that ``draw`` uses, if any.

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
        draw: Callable[[Tensor], Tensor] = most_likely,
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
        """Return the next token of each row. It is the tensor `token`, which the next call overwrites."""
        if self._is_warm and self.token.is_cuda and self._graph is None:
            self._graph = self._capture()
        if self._graph is not None:
            self._graph.replay()
        else:  # the first step compiles and allocates, which is not allowed during capture
            self._step()
            self._is_warm = True
        return self.token

    def _step(self) -> None:
        logits, state = self.model(self.token[:, None], self.state)
        if isinstance(state, Tensor):  # a cache is written in place
            self.state.copy_(state)
        self.token.copy_(self.draw(logits[:, -1]))

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Capture the step as a CUDA graph, without running it."""
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:
            graph.register_generator_state(self.generator)
        with torch.cuda.device_of(self.token), torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            self._step()
        return graph


@torch.no_grad()
def bits_per_character(model: nn.Module, text: Int[Tensor, " time"], segment: int = 512, **options: Any) -> float:
    """The mean number of bits that a model needs for each character of a text after the first.

    The model reads the text in segments and carries its state from one to the next.

    Args:
        model: A language model.
        text: The tokens of the text, at least two.
        segment: How many tokens the model reads at a time.
        options: Further arguments of the model, such as ``window=4608`` for a Transformer-XL.

    >>> import algebranets as an
    >>> model = an.models.create("gru_lm", algebra="H", hidden_size=16)
    >>> bits = an.models.bits_per_character(model, torch.tensor(list(b"abracadabra")))
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
        return most_likely(logits)
    logits, order = (logits.float() if logits.dtype.itemsize < 4 else logits).sort(dim=-1, descending=True)
    least = torch.finfo(logits.dtype).tiny  # its inverse is finite, and a GPU multiplies by the inverse
    # The largest logit becomes 0, so that a low temperature keeps it and turns all others into -inf.
    logits = (logits - logits[:, :1]) / max(temperature, least)
    if top_k is not None:
        logits[:, top_k:] = -math.inf
    probabilities = logits.softmax(-1)
    if top_p is not None:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= max(top_p, least), 0)
    # Like torch.multinomial, but without its check, which waits for the GPU. Of exponential clocks with these rates,
    # the first one to ring is a sample.
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
