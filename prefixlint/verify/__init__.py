"""What talks to running inference servers: the wire, what each server says of itself, replay, probe, watch."""
