"""Events as bytes, and back to state: codec, hash chain, fold, replay, snapshots."""
