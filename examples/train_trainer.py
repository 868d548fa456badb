"""Convert a small GPT-2 to M2(R), train it with transformers' Trainer on Python's documentation, save and load it.

python examples/train_trainer.py --steps 200 --out runs/gpt2
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, set_seed

import algebranets as an
from algebranets.conversion import PretrainedModel, create
from algebranets.lab.data import load

SOURCE = "transformers:GPT2LMHeadModel"


class Windows(Dataset):
    """Windows of equal length, cut from a text that is a tensor of bytes."""

    def __init__(self, text: Tensor, length: int) -> None:
        self.text, self.length = text, length

    def __len__(self) -> int:
        return len(self.text) // self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        window = self.text[index * self.length : (index + 1) * self.length].long()
        return {"input_ids": window, "labels": window}


def train(steps: int, out: Path, width: int = 128, length: int = 64) -> tuple[nn.Module, float, float]:
    """Return the trained model, and the loss on validation text before and after training."""
    set_seed(0)
    data = load("python-prose")
    options = {
        "vocab_size": data.vocab_size, "n_positions": length, "n_embd": width, "n_layer": 2, "n_head": 4,
        "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    real = create(SOURCE, **options)  # or a model that you made yourself: GPT2LMHeadModel(GPT2Config(...))
    model = an.convert(real, "M2R", inputs={"input_ids": torch.zeros(1, length, dtype=torch.long)})
    print(model.conversion)

    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"), max_steps=steps, per_device_train_batch_size=16, learning_rate=3e-3,
        lr_scheduler_type="constant", save_steps=steps, logging_steps=steps, report_to="none", use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    testing = Windows(data.valid[: 32 * length], length)
    trainer = Trainer(model, arguments, train_dataset=Windows(data.train, length), eval_dataset=testing)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    print(f"\nloss on new text: {before:.3f} before training, {after:.3f} after {steps} steps")

    # The Trainer's checkpoints do not describe the conversion. This folder does, so it loads without the code above.
    result = {"metric": "loss", "value": after, "data_set": "python-prose", "steps": steps, "seed": 0}
    PretrainedModel.wrap(model, SOURCE, options).save_pretrained(out / "model", model_card_kwargs={"result": result})
    loaded = PretrainedModel.from_pretrained(out / "model")
    prompt = data.valid[:16].long()[None]
    written = loaded.generate(prompt, max_new_tokens=16, do_sample=False)
    print(f"loaded from {out / 'model'}: {bytes(written[0].tolist())!r}")
    return model, before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="number of training steps")
    parser.add_argument("--out", type=Path, default=Path("runs/gpt2"), help="folder for checkpoints and the model")
    parser.add_argument("--width", type=int, default=128, help="width of the network, a multiple of 16")
    given = parser.parse_args()
    train(given.steps, given.out, given.width)
