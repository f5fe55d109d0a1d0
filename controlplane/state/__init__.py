"""The fold of the log and the indexes over it.

What belongs here: values that follow from the log alone (`state.py`) and indexes that follow from the state
(`world.py` lists them). What a component works out for itself belongs to that component.
"""
