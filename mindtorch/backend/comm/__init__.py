"""Communication between processes: stores, connections, collectives."""
