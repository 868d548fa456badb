"""The list of models of other libraries that must convert, each at full size and small for tests.

`tools/conversions.py` and `tests/test_adopted.py` use this list. No weights are downloaded: transformers' models are
built from configurations, and all weights are random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

#: The keyword arguments of a call.
Inputs = dict[str, Tensor]
Make = Callable[[], nn.Module]


@dataclass(frozen=True)
class Adopted:
    """A model of another library.

    Args:
        name: The model's name in its library.
        library: The library: "torchvision", "timm" or "transformers".
        make: Builds the model at full size.
        inputs: Returns inputs of the usual size. Multiply-adds are counted with them.
        check_inputs: Returns smaller inputs for the full-size model, so that checks take less time.
        make_small: Builds a small model with the same code, for tests.
        small_inputs: Returns inputs for the small model.
    """

    name: str
    library: str
    make: Make
    inputs: Callable[[], Inputs]
    check_inputs: Callable[[], Inputs]
    make_small: Make
    small_inputs: Callable[[], Inputs]

    def __str__(self) -> str:
        return self.name


def images(size: int, batch: int = 1) -> Inputs:
    """Random images. The first argument of torchvision's and timm's models is called ``x``."""
    return {"x": torch.randn(batch, 3, size, size)}


def tokens(length: int, batch: int = 1) -> Inputs:
    """Random sequences of tokens."""
    return {"input_ids": torch.randint(0, 96, (batch, length))}


def speech(bins: int, frames: int, length: int, batch: int = 1) -> Inputs:
    """Random mel spectrograms, and sequences of tokens."""
    spectrograms = torch.randn(batch, bins, frames)
    return {"input_features": spectrograms, "decoder_input_ids": torch.randint(0, 96, (batch, length))}


def torchvision(name: str, module: str = "torchvision.models", **options: Any) -> nn.Module:
    """A model of torchvision, by the name of its function or class. ``block`` is the name of a class."""
    found = import_module(module)
    if "block" in options:
        options["block"] = getattr(found, options["block"])
    return getattr(found, name)(**options)


def timm(name: str, **options: Any) -> nn.Module:
    """A model of timm."""
    return import_module("timm").create_model(name, **options)


def transformers(name: str, config: str, **options: Any) -> nn.Module:
    """A model of transformers, built from a configuration. It has no cache, which is only needed to generate text."""
    library = import_module("transformers")
    return getattr(library, name)(getattr(library, config)(use_cache=False, **options))


def of_torchvision(name: str, small: str, module: str = "torchvision.models", **options: Any) -> Adopted:
    """A model of torchvision. ``options`` are for the small version."""
    make_small = partial(torchvision, small, module, num_classes=10, **options)
    return of_images(name, "torchvision", partial(torchvision, name), make_small)


def of_timm(name: str, both: dict[str, Any] | None = None, check_size: int = 64, **options: Any) -> Adopted:
    """A model of timm. ``options`` are for the small version, and ``both`` for both versions."""
    both = both or {}
    return of_images(name, "timm", partial(timm, name, **both), partial(timm, name, **both, **options), check_size)


def of_images(name: str, library: str, make: Make, make_small: Make, check_size: int = 64) -> Adopted:
    """A model that takes images."""
    inputs = (partial(images, size) for size in (224, check_size))
    return Adopted(name, library, make, *inputs, make_small, partial(images, 32, batch=2))


def of_tokens(name: str, model: str, config: str, full: dict[str, Any], **options: Any) -> Adopted:
    """A language model of transformers. ``options`` are for the small version."""
    make, make_small = (partial(transformers, model, config, **chosen) for chosen in (full, SPECIAL_TOKENS | options))
    inputs = (partial(tokens, length) for length in (128, 16))
    return Adopted(name, "transformers", make, *inputs, make_small, partial(tokens, 12, batch=2))


def whisper(full: dict[str, int], small: dict[str, int]) -> Adopted:
    """transformers' speech model."""
    model, config = "WhisperForConditionalGeneration", "WhisperConfig"
    make, make_small = (partial(transformers, model, config, **sizes) for sizes in (full, SPECIAL_TOKENS | small))
    inputs = (partial(speech, 80, 3000, length) for length in (128, 16))
    return Adopted("Whisper", "transformers", make, *inputs, make_small, partial(speech, 16, 24, 10, batch=2))


def on_both_sides(layers: int, heads: int, width: int) -> dict[str, int]:
    """The options of a configuration that give the encoder and the decoder the same sizes."""
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": width}
    return {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}


#: A small vocabulary, which contains the special tokens.
SPECIAL_TOKENS = {"vocab_size": 96, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
RESNET, ONE_BLOCK_A_STAGE = "torchvision.models.resnet", (1, 1, 1, 1)

MODELS = {
    model.name: model
    for model in [
        of_torchvision("resnet18", "ResNet", RESNET, block="BasicBlock", layers=ONE_BLOCK_A_STAGE),
        of_torchvision("resnet50", "ResNet", RESNET, block="Bottleneck", layers=ONE_BLOCK_A_STAGE),
        of_torchvision(
            "mobilenet_v2",
            "MobileNetV2",
            width_mult=0.5,
            inverted_residual_setting=[[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]],
        ),
        of_torchvision("densenet121", "DenseNet", growth_rate=8, block_config=(3, 2), num_init_features=16, bn_size=2),
        of_timm("vit_tiny_patch16_224", check_size=224, img_size=32, embed_dim=48, depth=2, num_classes=10),
        of_timm("convnext_atto", depths=ONE_BLOCK_A_STAGE, dims=(16, 24, 32, 40), num_classes=10),
        of_timm(  # by default, blocks start as the identity, and half of the gradients are zero
            "seresnext26d_32x4d",
            {"zero_init_last": False},
            layers=ONE_BLOCK_A_STAGE,
            channels=(16, 32, 48, 64),
            cardinality=4,
            base_width=16,
            num_classes=10,
        ),
        of_tokens("GPT-2", "GPT2LMHeadModel", "GPT2Config", {}, n_positions=24, n_embd=48, n_layer=2, n_head=3),
        of_tokens(
            "BERT",
            "BertForMaskedLM",
            "BertConfig",
            {},
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=80,
            max_position_embeddings=24,
        ),
        of_tokens(
            "Llama",
            "LlamaForCausalLM",
            "LlamaConfig",
            {
                "hidden_size": 768,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "num_key_value_heads": 4,
                "intermediate_size": 2048,
            },
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=112,
        ),
        whisper(
            {"d_model": 384, **on_both_sides(layers=4, heads=6, width=1536)},  # whisper-tiny
            {
                "d_model": 48,
                "num_mel_bins": 16,
                "max_source_positions": 12,
                "max_target_positions": 12,
                "decoder_start_token_id": 1,
                **on_both_sides(layers=1, heads=3, width=80),
            },
        ),
    ]
}
