"""What all tests share."""

from hypothesis import settings

# A busy machine is no fault of the code.
settings.register_profile("lakehouse", deadline=None)
settings.load_profile("lakehouse")
