"""Kinds of manifests, one file for each framework: manifest to JobSpec, rank to environment.

Kinds consist of pure functions only.
"""
