"""Makes Triton's interpreter faster, without a change of what it computes."""

from dataclasses import replace
from types import FunctionType
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def skip_repeated_work() -> None:
    """Skip two things that the interpreter of Triton 3.9 does again and again. Leave other versions as they are."""
    if hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "_LangPatchScope"):
        interpreter._patch_lang = patch_if_needed(interpreter._patch_lang)
    builder = getattr(interpreter, "interpreter_builder", None)
    if hasattr(builder, "options"):
        # Without options.debug, Triton computes whether integers overflow and then ignores the result.
        builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)


def patch_if_needed(patch):
    """Skip the patch of ``triton.language`` at calls of functions within a kernel, where it is patched already."""

    def patch_language(function: FunctionType) -> Any:
        used = [lang for lang in (tl, tl.core) if any(value is lang for value in function.__globals__.values())]
        is_patched = used and not any(tl.core.is_builtin(lang.load) for lang in used)
        return interpreter._LangPatchScope() if is_patched else patch(function)

    return patch_language
