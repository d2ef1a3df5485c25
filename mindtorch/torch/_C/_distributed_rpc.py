"""torch._C._distributed_rpc: no RPC agent is available."""


def _is_current_rpc_agent_set():
    """Always False."""
    return False
