"""What only root can do in a local sandbox: an ordinary user cannot change what belongs to the host's root, not even copy-on-write."""

import os

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes files of the host's root, copy-on-write: root only")
