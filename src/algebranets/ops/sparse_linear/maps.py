"""The maps of a tuple-sparse weight, which say where it has tuples."""

#: Inputs that one number of a map stands for: a bit each in its lower half. Its upper half counts the tuples before.
SPAN = 32
