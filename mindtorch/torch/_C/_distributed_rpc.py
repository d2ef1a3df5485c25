"""torch._C._distributed_rpc: no agent of remote calls runs."""


def _is_current_rpc_agent_set():
    """False."""
    return False
