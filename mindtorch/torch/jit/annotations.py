"""torch.jit.annotations: types for annotations."""
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union  # noqa: F401


class _BroadcastingList:
    """BroadcastingListN[int]: an int or a list of N ints."""

    def __getitem__(self, types):
        return Any


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = \
    _BroadcastingList()
