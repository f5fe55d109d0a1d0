"""The physics: machines, and what becomes of the work they are given. It knows no control plane."""
