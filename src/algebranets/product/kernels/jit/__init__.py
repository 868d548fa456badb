"""Triton code: kernels and the functions that launch them, which know tensors but neither modules nor gradients."""


def ceil_div(number: int, by: int) -> int:
    """What `triton.cdiv` is, which outside of kernels takes ten microseconds a call."""
    return -(-number // by)


def next_power_of_2(number: int) -> int:
    """The same for `triton.next_power_of_2`.

    >>> [next_power_of_2(n) for n in (1, 2, 3, 8, 9)]
    [1, 2, 4, 8, 16]
    """
    return 1 << max(0, number - 1).bit_length()
