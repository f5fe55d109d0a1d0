"""The Clock port: real time on asyncio, virtual time on SimPy, and SimPy paced by a clock."""
