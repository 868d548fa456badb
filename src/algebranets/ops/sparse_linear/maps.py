"""The format of a sparse weight's maps, which say where the weight has tuples."""

#: The inputs that one number of a map describes, by one bit each in its lower half. Its upper half counts the tuples
#: that are stored before them.
SPAN = 32
